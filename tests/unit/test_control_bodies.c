/* test_control_bodies.c: strict JSON, each bound at, under and over it, base64, UTF-8. */
#include "unit.h"
#include "fault.h"
#include "control/checks.h"
#include "control/create_body.h"
#include "control/exec_body.h"
#include "control/json_in.h"
#include "control/limits.h"
#include "control/render.h"

/* ---- parsing ---- */

static void refuses(const char *text, enum dsec_code code)
{
	struct dsec_error e = { 0 };
	json_t *v = NULL;
	assert_int_equal(json_parse(text, strlen(text), &v, &e), -EINVAL);
	assert_int_equal(e.code, code);
	assert_null(v);
}

static void parses_strictly(void **state)
{
	json_t *v = NULL;
	assert_int_equal(json_parse("", 0, &v, NULL), 0);
	assert_int_equal(json_object_size(v), 0);
	json_decref(v);
	refuses("{", DSEC_E_BAD_JSON);
	refuses("[]", DSEC_E_BAD_JSON);
	refuses("\"x\"", DSEC_E_BAD_JSON);
	refuses("{} {}", DSEC_E_BAD_JSON);
	refuses("{\"a\":1,\"a\":2}", DSEC_E_BAD_JSON);
	refuses("{\"a\":\"\\u0000\"}", DSEC_E_BAD_JSON);
	refuses("{\"a\":\"\xff\"}", DSEC_E_BAD_JSON);
	refuses("{\"a\":\"\xed\xa0\x80\"}", DSEC_E_BAD_JSON);
	refuses("{\"a\":NaN}", DSEC_E_BAD_JSON);
	refuses("{'a':1}", DSEC_E_BAD_JSON);
}

static void depth_at_its_limit(void **state)
{
	char text[2 * LIMIT_JSON_DEPTH_MAX + 16];
	for (int over = 0; over <= 1; over++) {
		int lists = LIMIT_JSON_DEPTH_MAX - 1 + over;
		json_t *v = NULL;
		strcpy(text, "{\"a\":");
		memset(text + 5, '[', (size_t)lists);
		memset(text + 5 + lists, ']', (size_t)lists);
		strcpy(text + 5 + 2 * lists, "}");
		assert_int_equal(json_parse(text, strlen(text), &v, NULL), over ? -EINVAL : 0);
		json_decref(v);
	}
	json_t *v = NULL; /* brackets in strings are text */
	const char *brackets = "{\"a\":\"[[[[[[[[[[[[[[[[[[[[\\\"[[[\"}";
	assert_int_equal(json_parse(brackets, strlen(brackets), &v, NULL), 0);
	json_decref(v);
}

static void field_types(void **state)
{
	static const struct {
		const char *text;
		enum dsec_code code; /* 0: good */
	} cases[] = {
		{ "{}", 0 },
		{ "{\"s\":\"abc\",\"b\":true,\"u\":10,\"m\":0.5}", 0 },
		{ "{\"s\":\"abcd\"}", DSEC_E_NAME_TOO_LONG },
		{ "{\"s\":null}", DSEC_E_BAD_FIELD },
		{ "{\"s\":1}", DSEC_E_BAD_FIELD },
		{ "{\"b\":1}", DSEC_E_BAD_FIELD },
		{ "{\"u\":4}", DSEC_E_BAD_FIELD },
		{ "{\"u\":5}", 0 },
		{ "{\"u\":11}", DSEC_E_BAD_FIELD },
		{ "{\"u\":-5}", DSEC_E_BAD_FIELD },
		{ "{\"u\":5.5}", DSEC_E_BAD_FIELD },
		{ "{\"u\":\"5\"}", DSEC_E_BAD_FIELD },
		{ "{\"u\":18446744073709551616}", DSEC_E_BAD_JSON },
		{ "{\"m\":0.05}", 0 },
		{ "{\"m\":0.049}", DSEC_E_BAD_FIELD },
		{ "{\"m\":2}", 0 },
		{ "{\"m\":2.001}", DSEC_E_BAD_FIELD },
		{ "{\"m\":1e300}", DSEC_E_BAD_FIELD },
		{ "{\"m\":true}", DSEC_E_BAD_FIELD },
		{ "{\"x\":1}", DSEC_E_UNKNOWN_FIELD },
		{ "{\"S\":\"a\"}", DSEC_E_UNKNOWN_FIELD },
		{ "{\"s\":5,\"x\":1}", DSEC_E_UNKNOWN_FIELD },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dsec_error e = { 0 };
		struct json_in in;
		const char *s = NULL;
		bool b = false;
		uint64_t u = 0, m = 0;
		json_t *v = NULL;
		if (json_parse(cases[i].text, strlen(cases[i].text), &v, &e) == 0) {
			json_in_begin(&in, v, "", &e);
			json_in_string(&in, "s", 3, &s);
			json_in_bool(&in, "b", &b);
			json_in_uint(&in, "u", 5, 10, &u);
			json_in_milli(&in, "m", 50, 2000, &m);
			json_in_end(&in);
		}
		if (e.code != cases[i].code)
			fail_msg("%s gave %s", cases[i].text, dsec_code_name(e.code));
		if (i == 1) {
			assert_string_equal(s, "abc");
			assert_true(b);
			assert_int_equal(u, 10);
			assert_int_equal(m, 500);
		}
		json_decref(v);
	}
}

/* ---- exec bodies ---- */

static enum dsec_code exec_code(json_t *body_take)
{
	struct exec_body b;
	struct dsec_error e = { 0 };
	assert_non_null(body_take);
	exec_body_read(&b, body_take, &e);
	exec_body_done(&b);
	json_decref(body_take);
	return e.code;
}

static json_t *text_of(size_t n)
{
	char *p = malloc(n + 1);
	memset(p, 'x', n);
	json_t *v = json_stringn(p, n);
	free(p);
	return v;
}

static void exec_shapes(void **state)
{
	static const struct {
		const char *text;
		enum dsec_code code;
	} cases[] = {
		{ "{\"argv\":[\"ls\"]}", 0 },
		{ "{\"shell\":\"ls | wc\"}", 0 },
		{ "{}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[\"ls\"],\"shell\":\"ls\"}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[]}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":\"ls\"}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[\"\"]}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[\"ls\",\"\"]}", 0 },
		{ "{\"argv\":[1]}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[{\"b64\":\"//4=\"}]}", 0 },
		{ "{\"argv\":[{\"b64\":\"!\"}]}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[{\"b64\":\"AA==\"}]}", DSEC_E_BAD_ARGV }, /* a zero byte */
		{ "{\"argv\":[{\"b64\":\"//4=\",\"x\":1}]}", DSEC_E_BAD_ARGV },
		{ "{\"shell\":\"\"}", DSEC_E_BAD_ARGV },
		{ "{\"argv\":[\"a\"],\"id\":\"ok-1._\"}", 0 },
		{ "{\"argv\":[\"a\"],\"id\":\"a/b\"}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"id\":\"..\"}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"stdin\":\"open\"}", 0 },
		{ "{\"argv\":[\"a\"],\"stdin\":\"maybe\"}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"stdin\":\"open\",\"stdin_b64\":\"\"}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"stdin_b64\":\"eA==\"}", 0 },
		{ "{\"argv\":[\"a\"],\"stdin_b64\":\"eA=\"}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"pty\":{}}", 0 },
		{ "{\"argv\":[\"a\"],\"pty\":{\"rows\":0}}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"pty\":{\"rows\":65535,\"cols\":1}}", 0 },
		{ "{\"argv\":[\"a\"],\"pty\":{\"rows\":65536}}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"pty\":{\"x\":1}}", DSEC_E_UNKNOWN_FIELD },
		{ "{\"argv\":[\"a\"],\"cwd\":\"relative\"}", DSEC_E_BAD_CWD },
		{ "{\"argv\":[\"a\"],\"cwd\":\"/\"}", 0 },
		{ "{\"argv\":[\"a\"],\"user\":\"0:0\"}", 0 },
		{ "{\"argv\":[\"a\"],\"user\":\"a:b:c\"}", DSEC_E_BAD_USER },
		{ "{\"argv\":[\"a\"],\"user\":\"a b\"}", DSEC_E_BAD_USER },
		{ "{\"argv\":[\"a\"],\"timeout_seconds\":0.25}", 0 },
		{ "{\"argv\":[\"a\"],\"timeout_seconds\":604800}", 0 },
		{ "{\"argv\":[\"a\"],\"timeout_seconds\":604800.001}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"timeout_seconds\":-1}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"output_limit_bytes\":4095}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"output_limit_bytes\":4096}", 0 },
		{ "{\"argv\":[\"a\"],\"env\":{\"A\":\"1\"}}", 0 },
		{ "{\"argv\":[\"a\"],\"env\":{\"A\":1}}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"env\":{\"\":\"1\"}}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"env\":{\"A=B\":\"1\"}}", DSEC_E_BAD_FIELD },
		{ "{\"argv\":[\"a\"],\"env\":[]}", DSEC_E_BAD_FIELD },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum dsec_code code = exec_code(json_loads(cases[i].text, 0, NULL));
		if (code != cases[i].code)
			fail_msg("%s gave %s", cases[i].text, dsec_code_name(code));
	}
}

static void argv_bounds(void **state)
{
	/* one argument: the longest that the kernel takes, and one more byte */
	assert_int_equal(exec_code(json_pack("{s:[o]}", "argv", text_of(LIMIT_ARG_BYTES_MAX))), 0);
	assert_int_equal(exec_code(json_pack("{s:[o]}", "argv", text_of(LIMIT_ARG_BYTES_MAX + 1))), DSEC_E_BAD_ARGV);
	/* in all, a zero byte counted for each */
	size_t half = LIMIT_ARGV_TOTAL_BYTES_MAX / 2 - 1;
	assert_int_equal(exec_code(json_pack("{s:[o,o]}", "argv", text_of(half), text_of(half))), 0);
	assert_int_equal(exec_code(json_pack("{s:[o,o]}", "argv", text_of(half), text_of(half + 1))), DSEC_E_BAD_ARGV);
	for (int over = -1; over <= 1; over++) {
		json_t *a = json_array();
		for (int i = 0; i < LIMIT_ARGV_MEMBERS_MAX + over; i++)
			json_array_append_new(a, json_string("a"));
		assert_int_equal(exec_code(json_pack("{s:o}", "argv", a)), over > 0 ? DSEC_E_BAD_ARGV : 0);
	}
	assert_int_equal(exec_code(json_pack("{s:o}", "shell", text_of(LIMIT_ARG_BYTES_MAX))), 0);
	assert_int_equal(exec_code(json_pack("{s:o}", "shell", text_of(LIMIT_ARG_BYTES_MAX + 1))), DSEC_E_BAD_ARGV);
	json_t *id = text_of(LIMIT_EXEC_ID_LENGTH_MAX), *longer = text_of(LIMIT_EXEC_ID_LENGTH_MAX + 1);
	assert_int_equal(exec_code(json_pack("{s:[s],s:o}", "argv", "a", "id", id)), 0);
	assert_int_equal(exec_code(json_pack("{s:[s],s:o}", "argv", "a", "id", longer)), DSEC_E_NAME_TOO_LONG);
}

static json_t *with_stdin(size_t n)
{
	struct buf b = BUF_INIT(0);
	uint8_t *bytes = calloc(1, n);
	assert_int_equal(base64_encode(bytes, n, &b), 0);
	json_t *v = json_pack("{s:[s],s:o}", "argv", "a", "stdin_b64",
			      json_stringn((const char *)buf_ptr(&b), buf_len(&b)));
	buf_done(&b);
	free(bytes);
	return v;
}

static void stdin_bounds(void **state)
{
	assert_int_equal(exec_code(with_stdin(LIMIT_STDIN_INLINE_BYTES_MAX - 1)), 0);
	assert_int_equal(exec_code(with_stdin(LIMIT_STDIN_INLINE_BYTES_MAX)), 0);
	assert_int_equal(exec_code(with_stdin(LIMIT_STDIN_INLINE_BYTES_MAX + 1)), DSEC_E_BAD_FIELD);
}

static void env_bounds(void **state)
{
	for (int over = -1; over <= 1; over++) {
		json_t *env = json_object();
		for (int i = 0; i < LIMIT_ENV_VARS_MAX + over; i++) {
			char key[16];
			snprintf(key, sizeof(key), "K%d", i);
			json_object_set_new(env, key, json_string(""));
		}
		assert_int_equal(exec_code(json_pack("{s:[s],s:o}", "argv", "a", "env", env)),
				 over > 0 ? DSEC_E_BAD_FIELD : 0);
		env = json_object(); /* "A=" and NUL are 3 bytes */
		json_object_set_new(env, "A", text_of((size_t)(LIMIT_ENV_TOTAL_BYTES_MAX - 3 + over)));
		assert_int_equal(exec_code(json_pack("{s:[s],s:o}", "argv", "a", "env", env)),
				 over > 0 ? DSEC_E_BAD_FIELD : 0);
		env = json_object();
		json_t *name = text_of((size_t)(LIMIT_ENV_NAME_BYTES_MAX + over));
		json_object_set_new(env, json_string_value(name), json_string(""));
		json_decref(name);
		assert_int_equal(exec_code(json_pack("{s:[s],s:o}", "argv", "a", "env", env)),
				 over > 0 ? DSEC_E_NAME_TOO_LONG : 0);
	}
}

/* Bytes that are not UTF-8 arrive as they were meant, behind plain ones. */
static void argv_bytes(void **state)
{
	struct exec_body b;
	json_t *v = json_loads("{\"argv\":[\"a\",{\"b64\":\"/wE=\"},{\"b64\":\"/v7+\"}],\"stdin_b64\":\"AAE=\"}", 0, NULL);
	assert_int_equal(exec_body_read(&b, v, NULL), 0);
	assert_int_equal(b.message.n_argv, 3);
	assert_int_equal(b.message.argv[1].len, 2);
	assert_memory_equal(b.message.argv[1].data, "\xff\x01", 2);
	assert_memory_equal(b.message.argv[2].data, "\xfe\xfe\xfe", 3);
	assert_int_equal(b.message.stdin.len, 2);
	assert_memory_equal(b.message.stdin.data, "\0\1", 2);
	assert_true(id_exec_valid(b.message.exec_id));
	exec_body_done(&b);
	json_decref(v);
}

/* Every allocation fails once: a typed answer, nothing leaked (the ASan build looks). */
static void allocation_faults(void **state)
{
	json_t *v = json_loads("{\"argv\":[\"a\",{\"b64\":\"/wE=\"}],\"stdin_b64\":\"AAE=\",\"env\":{\"A\":\"1\",\"B\":\"2\"}}", 0, NULL);
	unsigned n = 0;
	for (;; n++) {
		struct exec_body b;
		struct dsec_error e = { 0 };
		fault_alloc_arm(n);
		int r = exec_body_read(&b, v, &e);
		bool reached = fault_alloc_disarm();
		exec_body_done(&b);
		if (!reached) {
			assert_int_equal(r, 0);
			break;
		}
		assert_true(r < 0);
		assert_int_equal(e.code, DSEC_E_CAPACITY);
	}
	assert_true(n >= 4);
	json_decref(v);
}

/* ---- sandbox bodies ---- */

struct with_store {
	char dir[64], path[96];
	struct control ctl;
};

static int open_catalogue(void **state)
{
	struct with_store *w = calloc(1, sizeof(*w));
	const struct store_layer l = {
		.name = "base", .version = "1", .source = "",
		.digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		.config = "{\"env\":{\"A\":\"layer\",\"B\":\"layer\"},\"cwd\":\"/layer\",\"user\":\"dev\"}",
	};
	strcpy(w->dir, "/tmp/dsec-bodies-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->path, sizeof(w->path), "%s/s.db", w->dir);
	assert_int_equal(store_open(w->path, &w->ctl.store), 0);
	assert_int_equal(store_layer_put(w->ctl.store, &l), 0);
	*state = w;
	return 0;
}

static int close_catalogue(void **state)
{
	struct with_store *w = *state;
	char command[128];
	store_close(w->ctl.store);
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static void create_shapes(void **state)
{
	struct with_store *w = *state;
	static const struct {
		const char *text;
		enum dsec_code code;
	} cases[] = {
		{ "", 0 },
		{ ",\"backend\":\"container\"", 0 },
		{ ",\"backend\":\"microvm\"", DSEC_E_UNSUPPORTED },
		{ ",\"cpu\":0.05", 0 },
		{ ",\"cpu\":0.049", DSEC_E_BAD_FIELD },
		{ ",\"cpu\":1024", 0 },
		{ ",\"cpu\":1024.001", DSEC_E_BAD_FIELD },
		{ ",\"memory_mb\":16", 0 },
		{ ",\"memory_mb\":15", DSEC_E_BAD_FIELD },
		{ ",\"memory_mb\":16777216", 0 },
		{ ",\"memory_mb\":16777217", DSEC_E_BAD_FIELD },
		{ ",\"disk_mb\":16", 0 },
		{ ",\"disk_mb\":15", DSEC_E_BAD_FIELD },
		{ ",\"disk_mb\":67108865", DSEC_E_BAD_FIELD },
		{ ",\"pids\":8", 0 },
		{ ",\"pids\":7", DSEC_E_BAD_FIELD },
		{ ",\"pids\":32768", 0 },
		{ ",\"pids\":32769", DSEC_E_BAD_FIELD },
		{ ",\"ttl_seconds\":1", 0 },
		{ ",\"ttl_seconds\":0.999", DSEC_E_BAD_FIELD },
		{ ",\"ttl_seconds\":604800", 0 },
		{ ",\"ttl_seconds\":604800.001", DSEC_E_BAD_FIELD },
		{ ",\"idle_ttl_seconds\":0", 0 },
		{ ",\"idle_ttl_seconds\":604801", DSEC_E_BAD_FIELD },
		{ ",\"cwd\":\"x\"", DSEC_E_BAD_CWD },
		{ ",\"user\":\"a:\"", DSEC_E_BAD_USER },
		{ ",\"hostname\":\"box-1.local\"", 0 },
		{ ",\"hostname\":\"a_b\"", DSEC_E_BAD_FIELD },
		{ ",\"hostname\":\"a..b\"", DSEC_E_BAD_FIELD },
		{ ",\"labels\":{\"job\":\"7\"}", 0 },
		{ ",\"labels\":{\"Job\":\"7\"}", DSEC_E_BAD_FIELD },
		{ ",\"labels\":{\"job\":7}", DSEC_E_BAD_FIELD },
		{ ",\"network_rules\":{}", 0 },
		{ ",\"network_rules\":{\"pypi\":false}", 0 },
		{ ",\"network_rules\":{\"pypi\":true}", DSEC_E_UNSUPPORTED },
		{ ",\"network_rules\":{\"allow\":[\"example.org\"]}", DSEC_E_UNSUPPORTED },
		{ ",\"network_rules\":{\"allow\":[]}", 0 },
		{ ",\"network_rules\":true", DSEC_E_BAD_FIELD },
		{ ",\"memory\":1", DSEC_E_UNKNOWN_FIELD },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct create_body b;
		struct dsec_error e = { 0 };
		char text[512];
		snprintf(text, sizeof(text), "{\"environment\":\"base\"%s}", cases[i].text);
		json_t *v = json_loads(text, 0, NULL);
		assert_non_null(v);
		create_body_read(&b, &w->ctl, v, &e);
		if (e.code != cases[i].code)
			fail_msg("%s gave %s", text, dsec_code_name(e.code));
		create_body_done(&b);
		json_decref(v);
	}
}

static void create_environment(void **state)
{
	struct with_store *w = *state;
	static const struct {
		const char *name;
		enum dsec_code code;
	} cases[] = { { "base", 0 }, { "base@1", 0 }, { "base:1", 0 }, { "base@2", DSEC_E_ENV_NOT_FOUND },
		      { "none", DSEC_E_ENV_NOT_FOUND }, { "base@", DSEC_E_BAD_FIELD }, { "@1", DSEC_E_BAD_FIELD },
		      { "base@1@1", DSEC_E_BAD_FIELD }, { "", DSEC_E_BAD_FIELD } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct create_body b;
		struct dsec_error e = { 0 };
		json_t *v = json_pack("{s:s}", "environment", cases[i].name);
		create_body_read(&b, &w->ctl, v, &e);
		if (e.code != cases[i].code)
			fail_msg("%s gave %s", cases[i].name, dsec_code_name(e.code));
		if (!e.code)
			assert_string_equal(b.message.environment, "base@1");
		create_body_done(&b);
		json_decref(v);
	}
}

static const char *env_value(const struct create_body *b, const char *key)
{
	for (size_t i = 0; i < b->message.n_env; i++)
		if (!strcmp(b->message.env[i]->key, key))
			return b->message.env[i]->value;
	return NULL;
}

/* What the layer brings is the default; the body goes over it. */
static void create_defaults(void **state)
{
	struct with_store *w = *state;
	struct create_body b;
	json_t *v = json_loads("{\"environment\":\"base\",\"env\":{\"B\":\"body\",\"C\":\"body\"}}", 0, NULL);
	assert_int_equal(create_body_read(&b, &w->ctl, v, NULL), 0);
	assert_string_equal(env_value(&b, "A"), "layer");
	assert_string_equal(env_value(&b, "B"), "body");
	assert_string_equal(env_value(&b, "C"), "body");
	assert_string_equal(b.message.cwd, "/layer");
	assert_string_equal(b.message.user, "dev");
	assert_int_equal(b.message.cpu_millis, 1000);
	assert_int_equal(b.message.memory_bytes, 512ull << 20);
	assert_int_equal(b.message.ttl_ms, 3600000);
	create_body_done(&b);
	json_decref(v);
	v = json_loads("{\"environment\":\"base\",\"cwd\":\"/x\",\"user\":\"1000\"}", 0, NULL);
	assert_int_equal(create_body_read(&b, &w->ctl, v, NULL), 0);
	assert_string_equal(b.message.cwd, "/x");
	assert_string_equal(b.message.user, "1000");
	create_body_done(&b);
	json_decref(v);
}

static void labels_bounds(void **state)
{
	struct with_store *w = *state;
	for (int over = -1; over <= 1; over++) {
		struct create_body b;
		struct dsec_error e = { 0 };
		json_t *labels = json_object();
		for (int i = 0; i < LIMIT_LABELS_MAX + over; i++) {
			char key[16];
			snprintf(key, sizeof(key), "k%d", i);
			json_object_set_new(labels, key, text_of((size_t)LIMIT_LABEL_VALUE_BYTES_MAX));
		}
		json_t *v = json_pack("{s:s,s:o}", "environment", "base", "labels", labels);
		create_body_read(&b, &w->ctl, v, &e);
		assert_int_equal(e.code, over > 0 ? DSEC_E_BAD_FIELD : 0);
		create_body_done(&b);
		json_decref(v);
		v = json_pack("{s:s,s:{s:o}}", "environment", "base", "labels", "k",
			      text_of((size_t)(LIMIT_LABEL_VALUE_BYTES_MAX + over)));
		e.code = 0;
		create_body_read(&b, &w->ctl, v, &e);
		assert_int_equal(e.code, over > 0 ? DSEC_E_NAME_TOO_LONG : 0);
		create_body_done(&b);
		json_decref(v);
	}
}

/* ---- bytes and text ---- */

static void base64_round_trip(void **state)
{
	uint8_t bytes[64];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37 + 200);
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		struct buf text = BUF_INIT(0), back = BUF_INIT(0);
		assert_int_equal(base64_encode(bytes, n, &text), 0);
		assert_int_equal(base64_decode(n ? (const char *)buf_ptr(&text) : "", buf_len(&text), &back), 0);
		assert_int_equal(buf_len(&back), n);
		if (n)
			assert_memory_equal(buf_ptr(&back), bytes, n);
		buf_done(&text);
		buf_done(&back);
	}
	static const char *const bad[] = { "A", "AA", "AAA", "A===", "====", "AA=A", "AAA*", "AB==", "AAB=", "AA==AA==" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct buf back = BUF_INIT(0);
		assert_int_equal(base64_decode(bad[i], strlen(bad[i]), &back), -EINVAL);
		buf_done(&back);
	}
}

static void utf8(void **state)
{
	static const char *const good[] = { "", "abc", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf" };
	static const char *const bad[] = { "\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
					   "\xf5\x80\x80\x80", "a\xff", "\xe2\x82" };
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(utf8_valid((const uint8_t *)good[i], strlen(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_false(utf8_valid((const uint8_t *)bad[i], strlen(bad[i])));
		json_t *v = render_text(bad[i], strlen(bad[i])); /* shown, not lost */
		assert_non_null(v);
		json_decref(v);
	}
	json_t *v = render_text("a\xff" "b", 3);
	assert_string_equal(json_string_value(v), "a\xef\xbf\xbd" "b");
	json_decref(v);
}

static void signals(void **state)
{
	static const struct {
		const char *text;
		uint32_t number; /* 0: bad_field */
	} cases[] = { { "{\"signal\":\"TERM\"}", 15 }, { "{\"signal\":\"SIGKILL\"}", 9 }, { "{\"signal\":\"int\"}", 2 },
		      { "{\"signal\":1}", 1 }, { "{\"signal\":64}", 64 }, { "{\"signal\":65}", 0 }, { "{\"signal\":0}", 0 },
		      { "{\"signal\":\"\"}", 0 }, { "{\"signal\":\"SIG\"}", 0 }, { "{}", 0 }, { "{\"signal\":15.0}", 0 } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dsec_error e = { 0 };
		struct json_in in;
		uint32_t n = 0;
		json_t *v = json_loads(cases[i].text, 0, NULL);
		json_in_begin(&in, v, "", &e);
		check_signal(&in, "signal", &n);
		json_in_end(&in);
		assert_int_equal(n, cases[i].number);
		assert_int_equal(e.code, cases[i].number ? 0 : DSEC_E_BAD_FIELD);
		json_decref(v);
	}
}

static void modes(void **state)
{
	uint32_t m = 0;
	assert_true(mode_parse("0644", &m));
	assert_int_equal(m, 0644);
	assert_true(mode_parse("7777", &m));
	assert_true(mode_parse("07777", &m));
	assert_false(mode_parse("10000", &m));
	assert_false(mode_parse("008", &m));
	assert_false(mode_parse("", &m));
	assert_false(mode_parse("0x1f", &m));
}

int main(void)
{
#define WITH_STORE(name) cmocka_unit_test_setup_teardown(name, open_catalogue, close_catalogue)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_strictly), cmocka_unit_test(depth_at_its_limit), cmocka_unit_test(field_types),
		cmocka_unit_test(exec_shapes), cmocka_unit_test(argv_bounds), cmocka_unit_test(stdin_bounds),
		cmocka_unit_test(env_bounds), cmocka_unit_test(argv_bytes), cmocka_unit_test(allocation_faults),
		WITH_STORE(create_shapes),
		WITH_STORE(create_environment), WITH_STORE(create_defaults), WITH_STORE(labels_bounds),
		cmocka_unit_test(base64_round_trip), cmocka_unit_test(utf8), cmocka_unit_test(signals),
		cmocka_unit_test(modes),
	};
	return cmocka_run_group_tests_name("control bodies", tests, NULL, NULL);
}
