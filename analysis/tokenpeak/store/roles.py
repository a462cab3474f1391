"""Database roles with the least rights: one that loads archives, and one that reads what was loaded."""

import re
from collections.abc import Iterator
from typing import Literal

from tokenpeak.errors import InputError

Purpose = Literal["reading", "loading"]
_OWNED = """\
DO $$ DECLARE one record; BEGIN
FOR one IN SELECT relname, relkind FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'v')
LOOP EXECUTE format('ALTER %s {schema}.%I OWNER TO {role}',
    CASE one.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, one.relname); END LOOP; END $$"""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def statements(role: str, purpose: Purpose, database: str, schema: str) -> Iterator[str]:
    """The SQL that makes a role, or gives one that is there its rights; again changes nothing.

    One for reading selects from the schema's tables and views, those of later migrations too. One for loading owns the
    schema, and nothing else: a superuser or the database's owner gives that once. InputError for a name that would
    need quotes.
    """
    if not _NAME.fullmatch(role) or role.startswith("pg_"):
        raise InputError(f"A role cannot be called {role!r}; give small letters, digits and underscores.")
    place = '"' + database.replace('"', '""') + '"'
    yield (
        f"DO $$ BEGIN CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    yield f"GRANT CONNECT ON DATABASE {place} TO {role}"
    yield f"ALTER ROLE {role} IN DATABASE {place} SET search_path TO {schema}"
    if purpose == "reading":
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
        yield f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}"
        return
    yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
    yield _OWNED.format(schema=schema, role=role)
    yield f"ALTER SCHEMA {schema} OWNER TO {role}"
