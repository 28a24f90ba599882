/* schema.h: the SQL schema of the SQLite store, one step a version.
 *
 * Used by sqlite.c only. Step i (from 0) takes a store from version i to i + 1;
 * PRAGMA user_version holds the version. A step that was ever released is never
 * edited: add the next one.
 */
#pragma once

static const char *const schema_steps[] = {
	"CREATE TABLE project ("
	"  name TEXT PRIMARY KEY NOT NULL,"
	"  created_at_ms INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE api_key ("
	"  hash BLOB PRIMARY KEY NOT NULL CHECK (length(hash) = 32),"
	"  project TEXT NOT NULL REFERENCES project(name),"
	"  label TEXT NOT NULL,"
	"  created_at_ms INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE layer ("
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  name TEXT NOT NULL,"
	"  version TEXT NOT NULL,"
	"  digest TEXT NOT NULL,"
	"  size_bytes INTEGER NOT NULL,"
	"  files INTEGER NOT NULL,"
	"  config TEXT NOT NULL,"
	"  source TEXT NOT NULL,"
	"  created_at_ms INTEGER NOT NULL,"
	"  UNIQUE (name, version));"
	"CREATE INDEX layer_digest ON layer(digest);"
	"CREATE INDEX layer_name_seq ON layer(name, seq);",

	"CREATE TABLE secret ("
	"  name TEXT PRIMARY KEY NOT NULL,"
	"  value BLOB NOT NULL CHECK (length(value) = 32)) WITHOUT ROWID;",
};
#define SCHEMA_VERSION (sizeof(schema_steps) / sizeof(schema_steps[0]))
/* "DSec" in PRAGMA application_id: tells our file from any other database. */
#define SCHEMA_APPLICATION_ID 0x44536563
