"""`schema_evolution` of a broker load: the schemas that its files need, stored with their rows (EV9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.broker.files import InputFile
from seqstore.loaders.broker.spec import LoadSpec
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.field_values import field_values
from seqstore.loaders.inference.needed_schema import NeededSchema, with_fields
from seqstore.store.publish.evolution import Evolution
from seqstore.store.store import Store
from seqstore.store.transaction.transaction import Transaction

Evolutions = Mapping[str, Evolution]


def evolved(
    store: Store, spec: LoadSpec, files: Sequence[Sequence[InputFile]], transaction: Transaction
) -> dict[str, Evolution]:
    """Gives the tables of a job's transaction the schemas that the files need; returns them by `db.table`.

    Raises:
        StoreError: a file is none of its format, or a field cannot be a column.
    """
    needed: dict[str, NeededSchema] = {}
    for description, found in zip(spec.descriptions, files, strict=True):
        mode = spec.options(description).schema_evolution
        if mode == "off":
            continue
        name = f"{spec.database}.{description.table}"
        if name not in needed:
            needed[name] = NeededSchema(transaction.table(name).schema, mode)
        for file in found:
            options = spec.options(description, file.name)
            options = with_registry(options, store.settings.schema_registries)
            with file.open() as body:
                needed[name].see(field_values(body, options, needed[name].columns))
    evolutions = {}
    for name, schema in needed.items():
        evolution = schema.evolution(store.table(name))
        if evolution is not None:
            transaction.table(name).evolve(evolution)
            evolutions[name] = evolution
    return evolutions


def options_of(file: InputFile, options: StreamLoadOptions) -> StreamLoadOptions:
    """Returns the options of one file, whose fields are named by itself if they may be new columns."""
    if not (options.evolves or options.auto_create):
        return options
    with file.open() as body:
        return with_fields(options, body)
