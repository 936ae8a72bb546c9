"""A file of marks beside table `events`."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from deltalake.exceptions import DeltaError

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.ledger.marks import LedgerMarks, RecordMarks, decode_marks, encode_marks

M = TypeVar("M", bound=LedgerMarks | RecordMarks)


@dataclass(slots=True)
class MarksUse:
    """How marks were used. `known`: number of the rows or records that they stand for, so that these were not read.

    `again`: why some were read again. `wrong`: parts whose marks did not agree with what was read. `marks_bytes`: size of
    the new marks. `seconds`: time that reading took.
    """

    known: int = 0
    seconds: float = 0.0
    again: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    marks_bytes: int = 0


class MarksFile(Generic[M]):
    """The marks of a tenant in folder `_ledger` of the table. `size`: that of the marks that were written, in bytes."""

    def __init__(self, folder: TableFolder, name: str, kind: type[M]) -> None:
        self.size = 0
        self._folder = folder
        self._path = f"_ledger/{name}.json.xz"
        self._kind = kind

    def read(self, tenant: str) -> M | None:
        """Return the marks of the tenant, `None` if there are none. Raises `ValueError` if they cannot be used."""
        try:
            (file,) = self._folder.file_system().get_file_info([self._path])
            if not file.is_file:
                return None
            with self._folder.file_system({self._path: file.size}).open_input_file(self._path) as source:
                marks = decode_marks(source.read(), self._kind)
        except (OSError, DeltaError) as error:
            raise ValueError(str(error).partition("\n")[0]) from None
        if marks.tenant != tenant:
            raise ValueError("they are of another tenant")
        return marks

    def write(self, marks: M) -> str:
        """Replace the marks. Returns why that failed, or an empty string."""
        data = encode_marks(marks)
        try:
            # Without a buffer for all of it, delta-rs refuses the object that Arrow passes.
            with self._folder.file_system().open_output_stream(self._path, buffer_size=len(data) + 1) as out:
                out.write(data)
        except (OSError, DeltaError) as error:
            return f"marks cannot be written, so the next run reads everything: {str(error).partition(chr(10))[0]}"
        self.size = len(data)
        return ""
