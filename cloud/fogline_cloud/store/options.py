"""`[store]` as options of delta-rs, of Spark and of the store's own client. Only `storage_of` does IO."""

from urllib.parse import urlsplit

from fogline_cloud.settings import CloudSettings, StoreSettings
from fogline_cloud.store.key_file import StoreKeys, read_keys

_SCHEMES = ("s3a://", "s3://")  # `settings.load` makes the first one of both
LOG_STORE = "fogline.PutIfAbsentLogStore"
"""The class by which Spark commits to tables in the store (cloud/java)."""
# A flow reports a store that is away, and waits by itself: its clients need not wait for minutes.
_DELTA_PATIENCE = {"timeout": "30s", "max_retries": "5", "retry_timeout": "30s"}
_SPARK_PATIENCE = {
    "spark.hadoop.fs.s3a.retry.limit": "2",  # of Hadoop; for each of them the SDK makes as many attempts
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.connection.timeout": "20s",  # without a byte
}
_USUAL_REGION = "us-east-1"  # of stores that have no regions


def is_stored(place: str) -> bool:
    """Return True if a folder of the settings is in the object store."""
    return place.startswith(_SCHEMES)


def uses_store(settings: CloudSettings) -> bool:
    """Return True if the tables or the checkpoint are in the object store."""
    return is_stored(settings.flow.tables) or is_stored(settings.flow.checkpoint)


def keys_of(settings: CloudSettings) -> StoreKeys | None:
    """Read the keys, None without a file of them. Raises `Misconfigured`."""
    return None if settings.store.key_file is None else read_keys(settings.store.key_file)


def storage_of(settings: CloudSettings) -> dict[str, str]:
    """Return the options of delta-rs for the folders of these settings; they may hold secrets. Raises `Misconfigured`."""
    return delta_options(settings.store, keys_of(settings)) if uses_store(settings) else {}


def delta_options(store: StoreSettings, keys: StoreKeys | None) -> dict[str, str]:
    """Return the options of delta-rs. Without keys it looks for some itself, as the SDKs of AWS do."""
    options = {f"aws_{name}": value for name, value in client_options(store, keys).items()}
    return {
        **options,
        **_DELTA_PATIENCE,
        "aws_conditional_put": "etag",
        **({"aws_allow_http": "true"} if is_plain(store) else {}),
    }


def client_options(store: StoreSettings, keys: StoreKeys | None) -> dict[str, str]:
    """Return the options of the crate `object_store`, which is delta-rs's client and ours, without its prefix `aws_`."""
    options = {"virtual_hosted_style_request": str(not is_path_style(store)).lower()}
    if store.endpoint is not None:
        options["endpoint"] = store.endpoint
    if (region := _region(store)) is not None:
        options["region"] = region
    if keys is not None:
        options |= {"access_key_id": keys.key_id, "secret_access_key": keys.secret}
        options |= {"session_token": keys.session_token} if keys.session_token else {}
    return options


def spark_options(store: StoreSettings) -> dict[str, str]:
    """Return Spark's options, without secrets: a command line shows these, and Spark's pages may."""
    options = {
        "spark.hadoop.fs.s3a.path.style.access": str(is_path_style(store)).lower(),
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
        **_SPARK_PATIENCE,
    }
    if store.endpoint is not None:
        options["spark.hadoop.fs.s3a.endpoint"] = store.endpoint
        options["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(not is_plain(store)).lower()
    if (region := _region(store)) is not None:
        options["spark.hadoop.fs.s3a.endpoint.region"] = region
    return options


def hadoop_secrets(keys: StoreKeys | None) -> dict[str, str]:
    """Return the keys as Hadoop's options, which go into a session after it has started: Spark gives them to its executors."""
    if keys is None:
        return {}
    secrets = {"fs.s3a.access.key": keys.key_id, "fs.s3a.secret.key": keys.secret}
    return secrets | ({"fs.s3a.session.token": keys.session_token} if keys.session_token else {})


def is_path_style(store: StoreSettings) -> bool:
    """Return True if the bucket is in the path of a request, as most stores but Amazon's want it."""
    return store.endpoint is not None if store.path_style is None else store.path_style


def is_plain(store: StoreSettings) -> bool:
    """Return True if the store is reached without TLS."""
    return store.endpoint is not None and urlsplit(store.endpoint).scheme == "http"


def _region(store: StoreSettings) -> str | None:
    return store.region if store.region is not None or store.endpoint is None else _USUAL_REGION
