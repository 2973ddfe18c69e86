"""Read all rows of the databases of a test, and compare the changes that two runs have made."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist
from django.core.management.color import no_style
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import AutoField, Field, Model

from mq_django.core.exceptions import repr_of
from mq_django.errors import TestKitError

#: How many references from one new row to another are followed.
MAX_DEPTH = 5

#: What the inbox notes about runs, and a relay about its claims, is no effect of a handler.
NO_EFFECTS = frozenset(
    {"mq_django.InboxMessage", "mq_django.InboxPass", "mq_django.OutboxState", "mq_django.OutboxIdentity"}
)

#: The values of a row by the name of the field.
Row = Mapping[str, Any]


def meta_of(model: type[Model]) -> Any:
    """Return what Django knows about a model."""
    return model._meta  # noqa: SLF001 - public in all but its name


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a model in one database."""

    alias: str
    model: type[Model]
    ignored: frozenset[str]

    @property
    def label(self) -> str:
        """Return the name of the model, and of the database if it is not the default one."""
        _, label = self.key
        return label if self.alias == DEFAULT_DB_ALIAS else f"{label} in database {self.alias!r}"

    @property
    def key(self) -> tuple[str, str]:
        """Return what identifies the table."""
        return self.alias, meta_of(self.model).label

    def fields(self) -> Iterator["Field[Any, Any]"]:
        """Yield the fields that have a column in this table and are compared."""
        yield from (each for each in meta_of(self.model).local_concrete_fields if each.name not in self.ignored)

    def read(self) -> dict[Any, Row]:
        """Return all rows by primary key."""
        names = [each.attname for each in self.fields()]
        # Unlike others, this manager leaves no row out.
        rows = self.model._base_manager.using(self.alias).values_list("pk", *names)  # noqa: SLF001
        return {pk: dict(zip(names, values, strict=True)) for pk, *values in rows}

    def makes_keys(self) -> bool:
        """Return whether new rows get a primary key that differs from run to run."""
        key: Any = meta_of(self.model).pk
        while key.remote_field is not None:
            key = key.target_field
        return isinstance(key, AutoField) or key.has_default()


@dataclass(frozen=True, slots=True)
class Database:
    """The tables that are compared, and their rows before any run."""

    tables: Mapping[tuple[str, str], Table]
    before: Mapping[tuple[str, str], Mapping[Any, Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, aliases: Collection[str], ignore: Collection[str]) -> "Database":
        """Return the tables of all models of these databases, with their rows.

        Raises:
            TestKitError: `ignore` has what is neither a model nor a field.
        """
        tables = {table.key: table for alias in aliases for table in _tables(alias, _ignored(ignore))}
        return cls(tables, {key: table.read() for key, table in tables.items()})

    def read(self) -> "Rows":
        """Return the rows as they are now."""
        return Rows(self, {key: table.read() for key, table in self.tables.items()})

    def reset_sequences(self) -> None:
        """Let the next rows get the same primary keys as before a rollback, which leaves sequences as they are."""
        for alias in {alias for alias, _ in self.tables}:
            connection = connections[alias]
            models = [table.model for table in self.tables.values() if table.alias == alias]
            statements = connection.ops.sequence_reset_sql(no_style(), models)
            if statements:
                with connection.cursor() as cursor:
                    for statement in statements:
                        cursor.execute(statement)


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows at one time."""

    database: Database
    rows: Mapping[tuple[str, str], Mapping[Any, Row]]

    def differences_from(self, reference: "Rows") -> Iterator[str]:
        """Yield in which rows this differs, in words."""
        for key, table in self.database.tables.items():
            yield from _changed(table.label, self.known(key), reference.known(key))
            yield from counted(f"row of {table.label}", self.made(key), reference.made(key))

    def known(self, key: tuple[str, str]) -> dict[Any, Row]:
        """Return the rows that can be told apart by their primary key."""
        return {pk: row for pk, row in self.rows[key].items() if not self._is_made(key, pk)}

    def made(self, key: tuple[str, str]) -> Counter[str]:
        """Count the other rows by their values."""
        return Counter(self._text(key, pk) for pk in self.rows[key] if self._is_made(key, pk))

    def _is_made(self, key: tuple[str, str], pk: Any) -> bool:
        return pk not in self.database.before[key] and self.database.tables[key].makes_keys()

    def _text(self, key: tuple[str, str], pk: Any, depth: int = 0) -> str:
        """Return a new row as text, without its primary key, and with the new rows to which it refers."""
        table, row, parts = self.database.tables[key], self.rows[key][pk], []
        for each in table.fields():
            if each.primary_key:
                continue
            value, target = row[each.attname], self._target(table, each)
            if target and value in self.rows[target] and self._is_made(target, value):
                new = self._text(target, value, depth + 1) if depth < MAX_DEPTH else "..."
                parts.append(f"{each.name}=(new: {new})")
            else:
                parts.append(f"{each.attname}={text_of(value)}")
        return ", ".join(parts) or "only a primary key"

    def _target(self, table: Table, each: "Field[Any, Any]") -> tuple[str, str] | None:
        """Return the table to whose primary key a field refers."""
        if each.remote_field is None or not getattr(each, "target_field", each).primary_key:
            return None
        key = table.alias, meta_of(meta_of(each.remote_field.model).concrete_model).label
        return key if key in self.rows else None


def text_of(value: Any) -> str:
    """Return a value as text that does not depend on the order of dicts."""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    return repr(value)


def counted(what: str, found: Counter[str], reference: Counter[str]) -> Iterator[str]:
    """Yield what there is more or less often than in the reference, in words."""
    for text in sorted((found - reference) + (reference - found)):
        more = found[text] - reference[text]
        yield f"{abs(more)} {what} {'too many' if more > 0 else 'too few'}: {text}"


def _changed(label: str, found: Mapping[Any, Row], reference: Mapping[Any, Row]) -> Iterator[str]:
    for pk in [*reference, *(pk for pk in found if pk not in reference)]:
        if pk not in found:
            yield f"the row {pk!r} of {label} is missing"
        elif pk not in reference:
            yield f"the row {pk!r} of {label} is there only now"
        else:
            for name, value in reference[pk].items():
                if found[pk][name] != value:
                    yield f"the row {pk!r} of {label} has {name}={text_of(found[pk][name])}, not {text_of(value)}"


def _tables(alias: str, ignored: Mapping[type[Model], frozenset[str] | None]) -> Iterator[Table]:
    existing = set(connections[alias].introspection.table_names())
    for model in apps.get_models(include_auto_created=True):
        meta, names = meta_of(model), ignored.get(model, frozenset())
        is_here = meta.managed and not meta.proxy and meta.db_table in existing and meta.label not in NO_EFFECTS
        if is_here and names is not None and router.allow_migrate_model(alias, model):
            # These have the time of the run.
            times = {
                each.name
                for each in meta.local_concrete_fields
                if getattr(each, "auto_now", False) or getattr(each, "auto_now_add", False)
            }
            yield Table(alias, model, names | times)


def _ignored(names: Collection[str]) -> dict[type[Model], frozenset[str] | None]:
    """Return the ignored fields of each model; None: all of it."""
    found: dict[type[Model], frozenset[str] | None] = {}
    for name in [names] if isinstance(names, str) else names:
        model_name, dot, field_name = name.rpartition(".") if name.count(".") > 1 else (name, "", "")
        try:
            model = apps.get_model(model_name)
            if not dot:
                found[model] = None
            elif (fields := found.get(model, frozenset())) is not None:
                found[model] = fields | {meta_of(model).get_field(field_name).name}
        except (LookupError, ValueError, FieldDoesNotExist) as error:
            raise TestKitError(
                "ignore= has models such as 'shop.Order' and fields such as 'shop.Order.total', "
                f"not {repr_of(name, 200)}"
            ) from error
    return found
