/* sqlite.c: store.h on one SQLite file.
 *
 * WAL with synchronous=FULL: readers never wait for the writer, and a commit is
 * on disk when it returns. Statements are prepared once and kept; a statement is
 * always reset before the call returns, so that no read transaction stays open
 * and the log can be folded back. kill -9 at any point leaves either the old or
 * the new state: SQLite replays or drops the log at the next open.
 */
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/random.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "store/schema.h"

enum statement {
	SQL_PING,
	SQL_PROJECT_PUT,
	SQL_PROJECT_EACH,
	SQL_KEY_PUT,
	SQL_KEY_FIND,
	SQL_KEY_REMOVE,
	SQL_SECRET_PUT,
	SQL_SECRET_GET,
	SQL_LAYER_PUT,
	SQL_LAYER_GET,
	SQL_LAYER_NEWEST,
	SQL_LAYER_EACH,
	SQL_LAYER_REMOVE,
	SQL_LAYER_REFS,
	SQL_COUNT
};

#define LAYER_COLUMNS "name, version, digest, size_bytes, files, config, source, created_at_ms"

static const char *const sql[SQL_COUNT] = {
	[SQL_PING] = "SELECT count(*) FROM (SELECT 1 FROM project LIMIT 1)",
	[SQL_PROJECT_PUT] = "INSERT INTO project VALUES (?1, ?2) ON CONFLICT DO NOTHING",
	[SQL_PROJECT_EACH] = "SELECT name FROM project ORDER BY name LIMIT ?1",
	[SQL_KEY_PUT] = "INSERT INTO api_key VALUES (?1, ?2, ?3, ?4) "
			"ON CONFLICT(hash) DO UPDATE SET project = ?2, label = ?3",
	/* By range on the first half, see store_key_find. */
	[SQL_KEY_FIND] = "SELECT hash, project FROM api_key WHERE hash >= ?1 AND hash <= ?2",
	[SQL_KEY_REMOVE] = "DELETE FROM api_key WHERE hash = ?1",
	[SQL_SECRET_PUT] = "INSERT INTO secret VALUES (?1, ?2) ON CONFLICT DO NOTHING",
	[SQL_SECRET_GET] = "SELECT value FROM secret WHERE name = ?1",
	[SQL_LAYER_PUT] = "INSERT INTO layer (" LAYER_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8) "
			  "ON CONFLICT(name, version) DO NOTHING",
	[SQL_LAYER_GET] = "SELECT " LAYER_COLUMNS " FROM layer WHERE name = ?1 AND version = ?2",
	[SQL_LAYER_NEWEST] =
		"SELECT " LAYER_COLUMNS " FROM layer WHERE name = ?1 ORDER BY seq DESC LIMIT 1",
	[SQL_LAYER_EACH] = "SELECT " LAYER_COLUMNS " FROM layer ORDER BY name, seq LIMIT ?1",
	[SQL_LAYER_REMOVE] = "DELETE FROM layer WHERE name = ?1 AND version = ?2",
	[SQL_LAYER_REFS] = "SELECT count(*) FROM layer WHERE digest = ?1",
};

struct store {
	sqlite3 *db;                   /* owned */
	sqlite3_stmt *stmt[SQL_COUNT]; /* owned, prepared once */
};

static int from_sqlite(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_CONSTRAINT:
		return -ENOENT; /* the one foreign key: a key of no project */
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		return -EBADMSG;
	case SQLITE_CANTOPEN:
		return -ENOENT;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return -EACCES;
	default:
		return -EIO;
	}
}

static int run(struct store *s, const char *text)
{
	return from_sqlite(sqlite3_exec(s->db, text, NULL, NULL, NULL));
}

static int pragma_int(struct store *s, const char *text, int64_t *ret)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(s->db, text, -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return from_sqlite(rc);
}

/* Returns a statement ready for binding; every user ends with finish(). */
static sqlite3_stmt *begin(struct store *s, enum statement which)
{
	return s->stmt[which];
}

static int finish(sqlite3_stmt *st, int rc)
{
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return from_sqlite(rc);
}

static int bind_text(sqlite3_stmt *st, int at, const char *text)
{
	return sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC);
}

/* ---- opening ---- */

static int migrate_locked(struct store *s)
{
	int64_t version = 0, app = 0, tables = 0;
	int r = pragma_int(s, "PRAGMA user_version", &version);
	if (!r)
		r = pragma_int(s, "PRAGMA application_id", &app);
	if (!r)
		r = pragma_int(s, "SELECT count(*) FROM sqlite_master", &tables);
	if (r)
		return r;
	if (app != SCHEMA_APPLICATION_ID && (app || version || tables))
		return -EBADMSG; /* somebody else's database */
	if (version > (int64_t)SCHEMA_VERSION)
		return -EPROTONOSUPPORT;
	for (; version < (int64_t)SCHEMA_VERSION; version++) {
		r = run(s, schema_steps[version]);
		if (r)
			return r;
	}
	char text[96];
	snprintf(text, sizeof(text), "PRAGMA user_version = %d; PRAGMA application_id = %d",
		 (int)SCHEMA_VERSION, SCHEMA_APPLICATION_ID);
	return run(s, text);
}

static int migrate(struct store *s)
{
	/* IMMEDIATE: two processes that start together migrate one after the other. */
	int r = run(s, "BEGIN IMMEDIATE");
	if (r)
		return r;
	r = migrate_locked(s);
	if (r) {
		run(s, "ROLLBACK");
		return r;
	}
	return run(s, "COMMIT");
}

static int prepare_all(struct store *s)
{
	for (int i = 0; i < SQL_COUNT; i++) {
		int rc = sqlite3_prepare_v3(s->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->stmt[i],
					    NULL);
		if (rc != SQLITE_OK)
			return from_sqlite(rc);
	}
	return 0;
}

/* SQLite would make the file with the umask's mode: make it here first. The log
 * and the shared index inherit the file's mode. */
static int make_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int store_open(const char *where, struct store **ret)
{
	int r = make_file(where);
	if (r)
		return r;
	struct store *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	int rc = sqlite3_open_v2(where, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	r = from_sqlite(rc);
	if (!r)
		r = from_sqlite(sqlite3_busy_timeout(s->db, STORE_BUSY_MS));
	if (!r)
		r = run(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
			   "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF");
	if (!r)
		r = migrate(s);
	if (!r)
		r = prepare_all(s);
	if (r) {
		store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (int i = 0; i < SQL_COUNT; i++)
		sqlite3_finalize(s->stmt[i]);
	sqlite3_close(s->db);
	free(s);
}

int store_ping(struct store *s)
{
	sqlite3_stmt *st = begin(s, SQL_PING);
	return finish(st, sqlite3_step(st));
}

int store_schema_version(struct store *s, uint32_t *ret)
{
	int64_t v = 0;
	int r = pragma_int(s, "PRAGMA user_version", &v);
	if (!r)
		*ret = (uint32_t)v;
	return r;
}

/* ---- projects and keys ---- */

int store_project_put(struct store *s, const char *name)
{
	if (!id_name_valid(name))
		return -EINVAL;
	sqlite3_stmt *st = begin(s, SQL_PROJECT_PUT);
	bind_text(st, 1, name);
	sqlite3_bind_int64(st, 2, (int64_t)now_real_ms());
	return finish(st, sqlite3_step(st));
}

int store_project_each(struct store *s, store_project_fn fn, void *user)
{
	sqlite3_stmt *st = begin(s, SQL_PROJECT_EACH);
	sqlite3_bind_int64(st, 1, STORE_LIST_MAX);
	int rc;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW)
		fn((const char *)sqlite3_column_text(st, 0), user);
	return finish(st, rc);
}

int store_key_put(struct store *s, const uint8_t hash[STORE_KEY_HASH_LEN], const char *project,
		  const char *label)
{
	if (!id_name_valid(project) || strlen(label) > NAME_MAX_LEN)
		return -EINVAL;
	sqlite3_stmt *st = begin(s, SQL_KEY_PUT);
	sqlite3_bind_blob(st, 1, hash, STORE_KEY_HASH_LEN, SQLITE_STATIC);
	bind_text(st, 2, project);
	bind_text(st, 3, label);
	sqlite3_bind_int64(st, 4, (int64_t)now_real_ms());
	return finish(st, sqlite3_step(st));
}

/* Time independent of where the two differ. (CRYPTO_memcmp would pull a whole
 * TLS library into the store for three lines.) */
static bool equal_constant_time(const uint8_t *a, const uint8_t *b, size_t n)
{
	volatile uint8_t diff = 0;
	for (size_t i = 0; i < n; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}

int store_key_find(struct store *s, const uint8_t hash[STORE_KEY_HASH_LEN],
		   char ret_project[NAME_MAX_LEN + 1])
{
	/* The index compares bytes until they differ; were the whole hash its key,
	 * its time would depend on the secret half too. */
	uint8_t low[STORE_KEY_HASH_LEN], high[STORE_KEY_HASH_LEN];
	memset(low, 0x00, sizeof(low));
	memset(high, 0xff, sizeof(high));
	memcpy(low, hash, STORE_KEY_HASH_LEN / 2);
	memcpy(high, hash, STORE_KEY_HASH_LEN / 2);
	sqlite3_stmt *st = begin(s, SQL_KEY_FIND);
	sqlite3_bind_blob(st, 1, low, sizeof(low), SQLITE_STATIC);
	sqlite3_bind_blob(st, 2, high, sizeof(high), SQLITE_STATIC);
	int rc;
	bool found = false;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		const void *have = sqlite3_column_blob(st, 0);
		if (have && sqlite3_column_bytes(st, 0) == STORE_KEY_HASH_LEN &&
		    equal_constant_time(have, hash, STORE_KEY_HASH_LEN)) {
			snprintf(ret_project, NAME_MAX_LEN + 1, "%s",
				 (const char *)sqlite3_column_text(st, 1));
			found = true;
		}
	}
	int r = finish(st, rc);
	return r ? r : found ? 0 : -ENOENT;
}

int store_key_remove(struct store *s, const uint8_t hash[STORE_KEY_HASH_LEN])
{
	sqlite3_stmt *st = begin(s, SQL_KEY_REMOVE);
	sqlite3_bind_blob(st, 1, hash, STORE_KEY_HASH_LEN, SQLITE_STATIC);
	int r = finish(st, sqlite3_step(st));
	return r ? r : sqlite3_changes(s->db) ? 0 : -ENOENT;
}

/* ---- secrets ---- */

static int secret_get(struct store *s, const char *name, uint8_t ret[STORE_SECRET_LEN])
{
	sqlite3_stmt *st = begin(s, SQL_SECRET_GET);
	bind_text(st, 1, name);
	int rc = sqlite3_step(st);
	const void *have = rc == SQLITE_ROW ? sqlite3_column_blob(st, 0) : NULL;
	bool found = have && sqlite3_column_bytes(st, 0) == STORE_SECRET_LEN;
	if (found)
		memcpy(ret, have, STORE_SECRET_LEN);
	int r = finish(st, rc);
	return r ? r : found ? 0 : -ENOENT;
}

int store_secret(struct store *s, const char *name, uint8_t ret[STORE_SECRET_LEN])
{
	uint8_t drawn[STORE_SECRET_LEN];
	if (!id_name_valid(name))
		return -EINVAL;
	int r = secret_get(s, name, ret);
	if (r != -ENOENT)
		return r;
	if (getrandom(drawn, sizeof(drawn), 0) != (ssize_t)sizeof(drawn))
		return -EIO;
	sqlite3_stmt *st = begin(s, SQL_SECRET_PUT);
	bind_text(st, 1, name);
	sqlite3_bind_blob(st, 2, drawn, sizeof(drawn), SQLITE_STATIC);
	r = finish(st, sqlite3_step(st));
	return r ? r : secret_get(s, name, ret); /* another process may have been first */
}

/* ---- layers ---- */

static const char *column(sqlite3_stmt *st, int at)
{
	const char *text = (const char *)sqlite3_column_text(st, at);
	return text ? text : "";
}

static void read_layer(sqlite3_stmt *st, store_layer_fn fn, void *user)
{
	struct store_layer l = {
		.name = column(st, 0),
		.version = column(st, 1),
		.digest = column(st, 2),
		.size_bytes = (uint64_t)sqlite3_column_int64(st, 3),
		.files = (uint64_t)sqlite3_column_int64(st, 4),
		.config = column(st, 5),
		.source = column(st, 6),
		.created_at_ms = (uint64_t)sqlite3_column_int64(st, 7),
	};
	fn(&l, user);
}

struct digest_check {
	const char *want;
	bool same;
};

static void compare_digest(const struct store_layer *l, void *user)
{
	struct digest_check *c = user;
	c->same = !strcmp(l->digest, c->want);
}

int store_layer_put(struct store *s, const struct store_layer *l)
{
	const char *config = l->config && *l->config ? l->config : "{}";
	const char *source = l->source ? l->source : "";
	if (!id_name_valid(l->name) || !id_name_valid(l->version) ||
	    strlen(l->digest) != STORE_DIGEST_LEN || strlen(config) > STORE_CONFIG_MAX ||
	    strlen(source) > STORE_SOURCE_MAX || l->size_bytes > INT64_MAX || l->files > INT64_MAX)
		return -EINVAL;
	sqlite3_stmt *st = begin(s, SQL_LAYER_PUT);
	bind_text(st, 1, l->name);
	bind_text(st, 2, l->version);
	bind_text(st, 3, l->digest);
	sqlite3_bind_int64(st, 4, (int64_t)l->size_bytes);
	sqlite3_bind_int64(st, 5, (int64_t)l->files);
	bind_text(st, 6, config);
	bind_text(st, 7, source);
	sqlite3_bind_int64(st, 8, (int64_t)(l->created_at_ms ? l->created_at_ms : now_real_ms()));
	int r = finish(st, sqlite3_step(st));
	if (r || sqlite3_changes(s->db))
		return r;
	struct digest_check c = { .want = l->digest };
	r = store_layer_get(s, l->name, l->version, compare_digest, &c);
	return r ? r : c.same ? 0 : -EEXIST;
}

int store_layer_get(struct store *s, const char *name, const char *version, store_layer_fn fn,
		    void *user)
{
	bool newest = !version || !*version;
	sqlite3_stmt *st = begin(s, newest ? SQL_LAYER_NEWEST : SQL_LAYER_GET);
	bind_text(st, 1, name);
	if (!newest)
		bind_text(st, 2, version);
	int rc = sqlite3_step(st);
	bool found = rc == SQLITE_ROW;
	if (found)
		read_layer(st, fn, user);
	int r = finish(st, rc);
	return r ? r : found ? 0 : -ENOENT;
}

int store_layer_each(struct store *s, store_layer_fn fn, void *user)
{
	sqlite3_stmt *st = begin(s, SQL_LAYER_EACH);
	sqlite3_bind_int64(st, 1, STORE_LIST_MAX);
	int rc;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW)
		read_layer(st, fn, user);
	return finish(st, rc);
}

struct digest_copy {
	char digest[STORE_DIGEST_LEN + 1];
};

static void copy_digest(const struct store_layer *l, void *user)
{
	struct digest_copy *c = user;
	snprintf(c->digest, sizeof(c->digest), "%s", l->digest);
}

static int remove_locked(struct store *s, const char *name, const char *version, uint64_t *ret_refs)
{
	struct digest_copy c;
	int r = store_layer_get(s, name, version, copy_digest, &c);
	if (r)
		return r;
	sqlite3_stmt *st = begin(s, SQL_LAYER_REMOVE);
	bind_text(st, 1, name);
	bind_text(st, 2, version);
	r = finish(st, sqlite3_step(st));
	return r ? r : store_layer_refs(s, c.digest, ret_refs);
}

int store_layer_remove(struct store *s, const char *name, const char *version, uint64_t *ret_refs)
{
	if (!version || !*version)
		return -EINVAL;
	uint64_t refs = 0;
	int r = run(s, "BEGIN IMMEDIATE");
	if (r)
		return r;
	r = remove_locked(s, name, version, &refs);
	if (!r)
		r = run(s, "COMMIT");
	if (r)
		run(s, "ROLLBACK");
	else
		*ret_refs = refs;
	return r;
}

int store_layer_refs(struct store *s, const char *digest, uint64_t *ret)
{
	sqlite3_stmt *st = begin(s, SQL_LAYER_REFS);
	bind_text(st, 1, digest);
	int rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*ret = (uint64_t)sqlite3_column_int64(st, 0);
	return finish(st, rc);
}
