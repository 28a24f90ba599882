/* test_store_conformance.c: what every provider of store.h must do.
 *
 * Written against store.h alone. A provider joins by an entry in `providers`:
 * how to name a fresh, empty store. Every test runs on each.
 */
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "store/store.h"

#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

struct fixture {
	char dir[64], where[128];
	struct store *s;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	strcpy(f->dir, "/tmp/dsec-store-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->where, sizeof(f->where), "%s/store.db", f->dir);
	assert_int_equal(store_open(f->where, &f->s), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[160];
	store_close(f->s);
	snprintf(command, sizeof(command), "rm -rf %s", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static void reopen(struct fixture *f)
{
	store_close(f->s);
	f->s = NULL;
	assert_int_equal(store_open(f->where, &f->s), 0);
}

static struct store_layer layer(const char *name, const char *version, const char *digest)
{
	return (struct store_layer){ .name = name, .version = version, .digest = digest, .size_bytes = 4096,
				     .files = 7, .config = "{\"cwd\":\"/w\"}", .source = "test" };
}

static void put(struct store *s, const char *name, const char *version, const char *digest)
{
	struct store_layer l = layer(name, version, digest);
	assert_int_equal(store_layer_put(s, &l), 0);
}

struct seen {
	char text[512];
	size_t n;
	uint64_t size, files, created;
	char config[64], source[64];
};

static void see(const struct store_layer *l, void *user)
{
	struct seen *v = user;
	size_t n = strlen(v->text);
	snprintf(v->text + n, sizeof(v->text) - n, "%s@%s %.9s;", l->name, l->version, l->digest);
	v->n++;
	v->size = l->size_bytes;
	v->files = l->files;
	v->created = l->created_at_ms;
	snprintf(v->config, sizeof(v->config), "%s", l->config);
	snprintf(v->source, sizeof(v->source), "%s", l->source);
}

/* ---- the store itself ---- */

static void opens_answers_and_is_private(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	uint32_t version = 0;
	assert_int_equal(store_ping(f->s), 0);
	assert_int_equal(store_schema_version(f->s, &version), 0);
	assert_true(version >= 1);
	assert_int_equal(stat(f->where, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void refuses_what_is_not_a_store(void **state)
{
	struct fixture *f = *state;
	char path[160];
	struct store *s = NULL;
	snprintf(path, sizeof(path), "%s/noise", f->dir);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	char noise[4096];
	memset(noise, 'x', sizeof(noise));
	assert_int_equal(write(fd, noise, sizeof(noise)), sizeof(noise));
	close(fd);
	assert_int_equal(store_open(path, &s), -EBADMSG);
	assert_null(s);
	snprintf(path, sizeof(path), "%s/no/such/dir/store", f->dir);
	assert_int_equal(store_open(path, &s), -ENOENT);
}

static void keeps_all_over_a_reopen(void **state)
{
	struct fixture *f = *state;
	struct seen v = { 0 };
	char project[NAME_MAX_LEN + 1];
	uint8_t hash[STORE_KEY_HASH_LEN] = { 1, 2, 3 };
	assert_int_equal(store_project_put(f->s, "alpha"), 0);
	assert_int_equal(store_key_put(f->s, hash, "alpha", "mine"), 0);
	put(f->s, "base", "1", DIGEST_A);
	reopen(f);
	assert_int_equal(store_key_find(f->s, hash, project), 0);
	assert_string_equal(project, "alpha");
	assert_int_equal(store_layer_get(f->s, "base", "1", see, &v), 0);
	assert_int_equal(v.size, 4096);
	assert_int_equal(v.files, 7);
	assert_string_equal(v.config, "{\"cwd\":\"/w\"}");
	assert_string_equal(v.source, "test");
	assert_true(v.created > 1600000000000u);
}

/* A writer that is killed at any moment leaves every row it was told is there,
 * and nothing half. */
static void survives_kill_of_a_writer(void **state)
{
	struct fixture *f = *state;
	store_close(f->s);
	f->s = NULL;
	for (int round = 0; round < 5; round++) {
		int told[2];
		assert_int_equal(pipe(told), 0);
		pid_t pid = fork();
		if (pid == 0) {
			struct store *s;
			if (store_open(f->where, &s))
				_exit(1);
			for (int i = 0;; i++) {
				char version[32];
				snprintf(version, sizeof(version), "%d-%d", round, i);
				struct store_layer l = layer("many", version, DIGEST_A);
				if (store_layer_put(s, &l))
					_exit(1);
				if (write(told[1], &i, sizeof(i)) != sizeof(i))
					_exit(1);
			}
		}
		close(told[1]);
		int last = -1, i, status;
		for (int n = 0; n < 10 + 7 * round; n++)
			assert_int_equal(read(told[0], &last, sizeof(last)), sizeof(last));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		while (read(told[0], &i, sizeof(i)) == sizeof(i))
			last = i;
		close(told[0]);
		assert_int_equal(store_open(f->where, &f->s), 0);
		for (i = 0; i <= last; i++) {
			char version[32];
			struct seen v = { 0 };
			snprintf(version, sizeof(version), "%d-%d", round, i);
			assert_int_equal(store_layer_get(f->s, "many", version, see, &v), 0);
		}
		store_close(f->s);
		f->s = NULL;
	}
	assert_int_equal(store_open(f->where, &f->s), 0);
}

static void two_processes_share_it(void **state)
{
	struct fixture *f = *state;
	struct store *other = NULL;
	struct seen v = { 0 };
	assert_int_equal(store_open(f->where, &other), 0);
	put(other, "base", "1", DIGEST_A);
	assert_int_equal(store_layer_get(f->s, "base", "1", see, &v), 0);
	put(f->s, "base", "2", DIGEST_B);
	assert_int_equal(store_layer_get(other, "base", NULL, see, &v), 0);
	store_close(other);
}

/* ---- projects and keys ---- */

static void names(const char *name, void *user)
{
	strcat(user, name);
	strcat(user, ";");
}

static void projects(void **state)
{
	struct fixture *f = *state;
	char all[256] = "", longest[NAME_MAX_LEN + 2];
	memset(longest, 'a', sizeof(longest));
	longest[NAME_MAX_LEN + 1] = 0;
	assert_int_equal(store_project_put(f->s, longest), -EINVAL); /* one over */
	longest[NAME_MAX_LEN] = 0;
	assert_int_equal(store_project_put(f->s, longest), 0); /* at the limit */
	assert_int_equal(store_project_put(f->s, "zoo"), 0);
	assert_int_equal(store_project_put(f->s, "zoo"), 0);
	assert_int_equal(store_project_put(f->s, "bar"), 0);
	assert_int_equal(store_project_put(f->s, "Bad Name"), -EINVAL);
	assert_int_equal(store_project_each(f->s, names, all), 0);
	assert_string_equal(all + NAME_MAX_LEN, ";bar;zoo;");
}

static void keys(void **state)
{
	struct fixture *f = *state;
	char project[NAME_MAX_LEN + 1] = "untouched";
	uint8_t a[STORE_KEY_HASH_LEN] = { 7 }, b[STORE_KEY_HASH_LEN] = { 7 };
	b[STORE_KEY_HASH_LEN - 1] = 1; /* same first half, another key */
	assert_int_equal(store_key_put(f->s, a, "nowhere", ""), -ENOENT);
	assert_int_equal(store_project_put(f->s, "alpha"), 0);
	assert_int_equal(store_project_put(f->s, "beta"), 0);
	assert_int_equal(store_key_find(f->s, a, project), -ENOENT);
	assert_string_equal(project, "untouched");
	assert_int_equal(store_key_put(f->s, a, "alpha", "first"), 0);
	assert_int_equal(store_key_find(f->s, b, project), -ENOENT);
	assert_int_equal(store_key_put(f->s, b, "beta", "second"), 0);
	assert_int_equal(store_key_find(f->s, a, project), 0);
	assert_string_equal(project, "alpha");
	assert_int_equal(store_key_find(f->s, b, project), 0);
	assert_string_equal(project, "beta");
	assert_int_equal(store_key_put(f->s, a, "beta", "moved"), 0);
	assert_int_equal(store_key_find(f->s, a, project), 0);
	assert_string_equal(project, "beta");
	assert_int_equal(store_key_remove(f->s, a), 0);
	assert_int_equal(store_key_remove(f->s, a), -ENOENT);
	assert_int_equal(store_key_find(f->s, a, project), -ENOENT);
	assert_int_equal(store_key_find(f->s, b, project), 0);
}

/* ---- layers ---- */

static void one_row_a_name_and_version(void **state)
{
	struct fixture *f = *state;
	struct seen v = { 0 };
	put(f->s, "base", "1", DIGEST_A);
	put(f->s, "base", "1", DIGEST_A); /* the same again */
	struct store_layer other = layer("base", "1", DIGEST_B);
	assert_int_equal(store_layer_put(f->s, &other), -EEXIST);
	assert_int_equal(store_layer_each(f->s, see, &v), 0);
	assert_string_equal(v.text, "base@1 sha256:aa;");
}

static void newest_is_the_one_created_last(void **state)
{
	struct fixture *f = *state;
	struct seen v = { 0 };
	put(f->s, "base", "9", DIGEST_A);
	put(f->s, "base", "10", DIGEST_B);
	put(f->s, "other", "1", DIGEST_A);
	assert_int_equal(store_layer_get(f->s, "base", NULL, see, &v), 0);
	assert_int_equal(store_layer_get(f->s, "base", "", see, &v), 0);
	assert_int_equal(store_layer_get(f->s, "base", "9", see, &v), 0);
	assert_string_equal(v.text, "base@10 sha256:bb;base@10 sha256:bb;base@9 sha256:aa;");
	assert_int_equal(store_layer_get(f->s, "base", "11", see, &v), -ENOENT);
	assert_int_equal(store_layer_get(f->s, "none", NULL, see, &v), -ENOENT);
	assert_int_equal(v.n, 3);
	memset(&v, 0, sizeof(v));
	assert_int_equal(store_layer_each(f->s, see, &v), 0);
	assert_string_equal(v.text, "base@9 sha256:aa;base@10 sha256:bb;other@1 sha256:aa;");
}

static void references_of_a_digest(void **state)
{
	struct fixture *f = *state;
	uint64_t refs = 99;
	put(f->s, "base", "1", DIGEST_A);
	put(f->s, "alias", "1", DIGEST_A);
	assert_int_equal(store_layer_refs(f->s, DIGEST_A, &refs), 0);
	assert_int_equal(refs, 2);
	assert_int_equal(store_layer_remove(f->s, "base", "1", &refs), 0);
	assert_int_equal(refs, 1);
	assert_int_equal(store_layer_remove(f->s, "alias", "1", &refs), 0);
	assert_int_equal(refs, 0);
	refs = 99;
	assert_int_equal(store_layer_remove(f->s, "alias", "1", &refs), -ENOENT);
	assert_int_equal(refs, 99); /* not touched on failure */
	assert_int_equal(store_layer_refs(f->s, DIGEST_B, &refs), 0);
	assert_int_equal(refs, 0);
}

static void bounds_of_a_layer(void **state)
{
	struct fixture *f = *state;
	char *text = malloc(STORE_CONFIG_MAX + 2);
	memset(text, ' ', STORE_CONFIG_MAX + 1);
	text[STORE_CONFIG_MAX + 1] = 0;
	struct store_layer l = layer("base", "1", DIGEST_A);
	l.config = text;
	assert_int_equal(store_layer_put(f->s, &l), -EINVAL);
	text[STORE_CONFIG_MAX] = 0;
	assert_int_equal(store_layer_put(f->s, &l), 0);
	l = layer("base", "2", DIGEST_A);
	l.source = text;
	text[STORE_SOURCE_MAX] = 0;
	assert_int_equal(store_layer_put(f->s, &l), 0);
	l.version = "3";
	text[STORE_SOURCE_MAX] = ' ';
	text[STORE_SOURCE_MAX + 1] = 0;
	assert_int_equal(store_layer_put(f->s, &l), -EINVAL);
	l = layer("Base", "1", DIGEST_A);
	assert_int_equal(store_layer_put(f->s, &l), -EINVAL);
	l = layer("base", "", DIGEST_A);
	assert_int_equal(store_layer_put(f->s, &l), -EINVAL);
	l = layer("base", "4", "sha256:short");
	assert_int_equal(store_layer_put(f->s, &l), -EINVAL);
	l = layer("base", "5", DIGEST_A);
	l.size_bytes = UINT64_MAX;
	assert_int_equal(store_layer_put(f->s, &l), -EINVAL);
	free(text);
}

static void secrets_are_drawn_once(void **state)
{
	struct fixture *f = *state;
	struct store *other = NULL;
	uint8_t a[STORE_SECRET_LEN] = { 0 }, b[STORE_SECRET_LEN] = { 0 }, zero[STORE_SECRET_LEN] = { 0 };
	assert_int_equal(store_secret(f->s, "one", a), 0);
	assert_memory_not_equal(a, zero, sizeof(a));
	assert_int_equal(store_open(f->where, &other), 0); /* another process */
	assert_int_equal(store_secret(other, "one", b), 0);
	assert_memory_equal(a, b, sizeof(a));
	assert_int_equal(store_secret(other, "two", b), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	store_close(other);
	reopen(f);
	assert_int_equal(store_secret(f->s, "one", b), 0);
	assert_memory_equal(a, b, sizeof(a));
	assert_int_equal(store_secret(f->s, "No", b), -EINVAL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(opens_answers_and_is_private),
		TEST(refuses_what_is_not_a_store),
		TEST(keeps_all_over_a_reopen),
		TEST(survives_kill_of_a_writer),
		TEST(two_processes_share_it),
		TEST(projects),
		TEST(keys),
		TEST(one_row_a_name_and_version),
		TEST(newest_is_the_one_created_last),
		TEST(references_of_a_digest),
		TEST(bounds_of_a_layer),
		TEST(secrets_are_drawn_once),
	};
	return cmocka_run_group_tests_name("store conformance", tests, NULL, NULL);
}
