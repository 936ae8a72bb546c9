package fogline;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;

/**
 * Commits of Delta tables to an object store by one request that the store refuses if the commit's file exists
 * (S3: PUT with If-None-Match: *). Programs on several machines, and delta-rs, may commit to one table at a time.
 *
 * <p>Delta's own S3SingleDriverLogStore looks for the file first, and then overwrites one that came meanwhile.
 *
 * <p>To use it: spark.delta.logStore.s3a.impl = fogline.PutIfAbsentLogStore
 */
public final class PutIfAbsentLogStore extends HadoopFileSystemLogStore {
    public PutIfAbsentLogStore(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration configuration) throws IOException {
        StringBuilder text = new StringBuilder();
        lines.forEachRemaining(line -> text.append(line).append('\n'));
        byte[] content = text.toString().getBytes(StandardCharsets.UTF_8);
        FileSystem files = path.getFileSystem(configuration);
        try {
            put(files, path, content, overwrite);
        } catch (IOException error) {
            if (overwrite) {
                throw error;
            }
            // The store refused the request, or its answer was lost: of a repeated one, it refuses the copy.
            byte[] found = read(files, path, error);
            if (!Arrays.equals(found, content)) { // each commit has an id of its own
                FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
                taken.initCause(error);
                throw taken;
            }
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
        return false;
    }

    private static void put(FileSystem files, Path path, byte[] content, boolean overwrite) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path).overwrite(true).recursive();
        if (!overwrite) { // "must": a file system that does not know the option refuses it
            builder = builder.must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true);
        }
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        try {
            out.write(content);
        } catch (IOException error) {
            out.abort(); // to close it would store a part
            throw error;
        }
        out.close();
    }

    /** Returns the file's content, or throws the error of the write if there is no file. */
    private static byte[] read(FileSystem files, Path path, IOException error) throws IOException {
        try (FSDataInputStream in = files.open(path)) {
            return in.readAllBytes();
        } catch (FileNotFoundException absent) {
            throw error;
        }
    }
}
