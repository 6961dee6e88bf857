"""Bodies of Avro as lines of JSON: what every load opens a body by (AV1).

A body is an object container file, whose schema is in its head, or messages of a schema registry, one behind
the other. A broken value ends the body, because nothing says where the next one begins.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, cast

from seqstore.loaders.avro.container import BLOCK_BYTES_MAX, Block, Container
from seqstore.loaders.avro.messages import HEAD_BYTES, MAGIC, AvroMessages, UndecodableError
from seqstore.loaders.avro.writer_schema import WriterSchema, parsed
from seqstore.loaders.changes.field_type import FieldType, row_types_of
from seqstore.loaders.compress import open_compressed
from seqstore.loaders.headers import AvroOptions, StreamLoadOptions
from seqstore.loaders.prefixed_body import PrefixedBody
from seqstore.store.errors import InvalidInputError

_CONTAINER: Final = b"Obj\x01"
_PIECE_BYTES: Final = 1 << 20
_EMPTY_MAX: Final = 1_000_000
_NO_NUMBER: Final = -1  # of a schema in the head of a file


def open_plain(body: BinaryIO, options: StreamLoadOptions) -> BinaryIO:
    """Returns a stream of plain bytes; of a body of Avro, of its rows as lines of JSON.

    Reading raises `InvalidInputError` when the bytes are not what the options say, and `UnavailableError`
    when a schema registry does not answer.
    """
    plain = open_compressed(body, options.compression)
    return plain if options.avro is None else cast(BinaryIO, AvroBody(plain, options.avro))


def open_lines(file: BinaryIO, options: StreamLoadOptions) -> BinaryIO:
    """Returns the rows of a file of Avro as lines; closing them closes the file. Raises as `open_plain`."""
    assert options.avro is not None
    try:
        return cast(BinaryIO, AvroBody(open_compressed(file, options.compression), options.avro, owned=file))
    except BaseException:
        file.close()
        raise


class AvroBody(io.RawIOBase):
    """See the module.

    Args:
        owned: is closed with the body.

    Attributes:
        schema: of the first value, None for an empty body.
    """

    def __init__(self, body: BinaryIO, options: AvroOptions, owned: BinaryIO | None = None) -> None:
        self._owned = owned
        self._options = options
        self._messages = AvroMessages(options)
        head = body.read(HEAD_BYTES)
        self._body = io.BufferedReader(_Raw(PrefixedBody(head, body)), _PIECE_BYTES)
        self.schema: WriterSchema | None = None
        self._ready = b""
        self._lines = iter(()) if not head else self._begun(head)

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """Returns the fields that the first schema declares; none of an empty body."""
        return {} if self.schema is None else row_types_of(self.schema.connect)

    def close(self) -> None:
        if self._owned is not None:
            self._owned.close()
        super().close()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns lines of at least a megabyte, all of them without a size, or nothing at the end."""
        pieces = [self._ready]
        held = len(self._ready)
        while size < 0 or held < size:
            line = next(self._lines, None)
            if line is None:
                break
            pieces += [line, b"\n"]
            held += len(line) + 1
        data = b"".join(pieces)
        cut = held if size < 0 else size
        self._ready = data[cut:]
        return data[:cut]

    def _begun(self, head: bytes) -> Iterator[bytes]:
        if head.startswith(_CONTAINER):
            return self._of_container()
        if head.startswith(MAGIC):
            return self._of_messages(head)
        raise InvalidInputError(
            f"the body is no Avro: expected an object container file ({_CONTAINER[:3].decode()}) or messages "
            f"of a schema registry (0), found {head.hex(' ')}",
            kind="data_quality",
        )

    def _of_container(self) -> Iterator[bytes]:
        container = Container(self._body)
        schema = self.schema = parsed([container.schema], is_changes=self._options.is_changes)
        return self._of_blocks(container.blocks(), schema)

    def _of_blocks(self, blocks: Iterator[Block], schema: WriterSchema) -> Iterator[bytes]:
        for block in blocks:
            if not schema.bounds.has_bytes and block.count > _EMPTY_MAX:
                raise UndecodableError(
                    f"a block has {block.count} values without bytes, expected {_EMPTY_MAX} at most",
                    kind="data_quality",
                )
            stream = io.BytesIO(block.data)
            for _ in range(block.count):
                value = self._messages.value(schema, block.data, stream)
                yield self._messages.line_of(schema, value, _NO_NUMBER)

    def _of_messages(self, head: bytes) -> Iterator[bytes]:
        if len(head) == HEAD_BYTES:
            self.schema = self._messages.schema(int.from_bytes(head[1:], "big"))
        return self._of_values()

    def _of_values(self) -> Iterator[bytes]:
        """Yields the messages; one that the bytes read so far do not hold is tried again with more."""
        data, at = self._body.read1(_PIECE_BYTES), 0
        while data:
            try:
                line, at = self._messages.value_line(data, at)
            except UndecodableError:
                more = self._body.read(max(_PIECE_BYTES, len(data) - at))
                if not more or len(data) - at > BLOCK_BYTES_MAX:
                    raise
                data, at = data[at:] + more, 0
                continue
            yield line
            if at == len(data):
                data, at = self._body.read1(_PIECE_BYTES), 0


class _Raw(io.RawIOBase):
    """Bytes for a buffered reader."""

    def __init__(self, inner: PrefixedBody) -> None:
        self._inner = inner
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at
