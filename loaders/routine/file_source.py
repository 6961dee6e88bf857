"""FROM FILES: the files that a pattern matches, each once, in the order of their names.

The source is a log of one partition, "0", whose k-th offset is the k-th file that was read. The names of
these files are kept beside the job, in the transaction that publishes their rows; any other match is still to
be read. Only names of files that are there are looked for, so a round costs the same however many files the
job has read. A file counts as read by its name: later appended rows are not seen, so files should be put in
place whole (written elsewhere, then renamed).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from seqstore.loaders.avro.body import open_lines, open_plain
from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.broker.files import InputFile, check_pattern, check_secrets, find_files, identity, shown
from seqstore.loaders.broker.spec import DataDescription
from seqstore.loaders.compress import open_compressed
from seqstore.loaders.routine.change_messages import change_bodies_of_lines
from seqstore.loaders.routine.messages import bodies_of_lines
from seqstore.loaders.routine.source import Body, Bounds, Piece, SourceUnavailable, Span
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.store.errors import InvalidInputError, NotFoundError

PARTITION: Final = "0"


class FileSource:
    """See the module.

    Args:
        path: files or a pattern; complete.
        allowed: directories and URIs below which files may be read.
        count: how many files were read.
        were_read: returns those of some names whose files were read.
        bodies: the rows of a file.
        references: secrets that the path may name.
    """

    def __init__(
        self,
        path: str,
        allowed: Sequence[str],
        count: Callable[[], int],
        were_read: Callable[[Collection[str]], Collection[str]],
        bodies: Callable[[InputFile], Iterator[Body]],
        references: Sequence[str] = (),
    ) -> None:
        self._bodies = bodies
        self._description = DataDescription("", (path,))
        self._allowed = allowed
        self._references = references
        self._count = count
        self._were_read = were_read
        self._done: set[str] = set()  # of the files that were there the last time

    def identity(self) -> str:
        """Implements `Source.identity`: always empty, because the names of files identify them."""
        return ""

    def bounds(self) -> dict[str, Bounds]:
        """Implements `Source.bounds`."""
        done, waiting = self._state()
        return {PARTITION: Bounds(0, done + len(waiting))}

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Implements `Source.first_offsets`: a job begins at the first file."""
        return {name: bounds[name].earliest for name in partitions}

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        """Implements `Source.pieces`: each piece is one file."""
        _, waiting = self._state()
        for span in spans:
            offsets = range(span.start, span.end)
            for offset, file in zip(offsets, waiting, strict=False):
                bodies = partial(self._bodies, file)
                yield Piece(
                    Span(span.partition, offset, offset + 1),
                    bodies,
                    file.size,
                    file.name,
                    (identity(file.uri),),
                )

    def close(self) -> None:
        """Holds nothing."""

    def _state(self) -> tuple[int, list[InputFile]]:
        """Returns the count of read files, and the other files."""
        try:
            found = find_files(self._description, self._allowed, self._references)
        except NotFoundError:
            found = []
        except OSError as error:
            raise SourceUnavailable(
                f"{shown(self._description.paths[0])}: cannot be listed: {error}", kind="source"
            ) from error
        named = {identity(file.uri): file for file in found}
        self._done &= named.keys()
        self._done.update(self._were_read(named.keys() - self._done))
        waiting = [file for name, file in named.items() if name not in self._done]
        return self._count(), sorted(waiting, key=lambda file: file.uri)


def file_bodies(spec: RoutineSpec, registries: Sequence[str], file: InputFile) -> Iterator[Body]:
    """Yields the rows of a file; where a job has many tables, its lines are messages that name them (R3).

    Args:
        registries: the setting `schema_registries`.

    Raises:
        InvalidInputError: the lines of such a file are neither CSV nor JSON.
    """
    avro = spec.avro_options(file.name)
    given = spec.options(file.name) if avro is None else with_registry(avro, registries)
    if not spec.is_multi:
        yield Body(file.open if avro is None else lambda: open_lines(file.open(), given))
        return
    options = spec.options(file.name)
    if options.is_changes:
        with file.open() as opened:
            yield from change_bodies_of_lines(open_plain(opened, given), options.format)
        return
    if options.format not in ("csv", "json"):
        raise InvalidInputError(
            f"{file.name}: expected lines of csv or json, which name their tables, found {options.format}",
            kind="bad_load",
        )
    with file.open() as opened:
        yield from bodies_of_lines(open_compressed(opened, options.compression), options)


def complete_path(
    properties: Mapping[str, str], allowed: Sequence[str], references: Sequence[str] = ()
) -> str:
    """Returns the path that the source's properties name, absolute.

    Raises:
        InvalidInputError: there is none, or another property.
        AccessDeniedError: it is not below a directory that loads may read, or a secret is not allowed.
    """
    for name in properties:
        if name != "path":
            raise InvalidInputError(
                f'{name} is invalid property of FROM FILES, which has only "path"', kind="bad_property"
            )
    path = properties.get("path", "").removeprefix("file://")
    if not path:
        raise InvalidInputError('FROM FILES needs "path" = "dir/*.json"', kind="bad_property")
    if "://" not in path:
        path = os.path.abspath(path)
    check_pattern(path, allowed)
    check_secrets(path, references)
    return path
