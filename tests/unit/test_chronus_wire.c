/* chronus's hand-written encoder and decoder against protobuf-c, both ways. */
#include "unit.h"
#include "base/cleanup.h"
#include "chronus.pb-c.h"
#include "chronus/wire.h"

static size_t pack(const ProtobufCMessage *m, uint8_t **ret)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	*ret = malloc(n + 1);
	return protobuf_c_message_pack(m, *ret);
}

static void slice_is(struct slice s, const char *want)
{
	assert_int_equal(s.n, strlen(want));
	assert_memory_equal(s.p, want, s.n);
}

#define BYTES(s) ((ProtobufCBinaryData){ strlen(s), (uint8_t *)(s) })

static void test_exec_start(void **state)
{
	Dsec__Chronus__ExecStart s = DSEC__CHRONUS__EXEC_START__INIT;
	Dsec__Chronus__EnvVar v[2] = { DSEC__CHRONUS__ENV_VAR__INIT, DSEC__CHRONUS__ENV_VAR__INIT };
	Dsec__Chronus__EnvVar *env[2] = { &v[0], &v[1] };
	Dsec__Chronus__ChronusOpen o = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	ProtobufCBinaryData argv[3] = { BYTES("/bin/sh"), BYTES(""), BYTES("x\xff y") };
	_cleanup_free_ uint8_t *p = NULL;
	struct wire_open w;
	v[0].name = BYTES("A");
	v[0].value = BYTES("1=2");
	v[1].name = BYTES("EMPTY");
	s.id = (char *)"ex-1";
	s.n_argv = 3;
	s.argv = argv;
	s.n_env = 2;
	s.env = env;
	s.cwd = BYTES("/tmp");
	s.user = BYTES("agent:video");
	s.stdin_open = s.pty = s.no_new_privs = true;
	s.rows = 24;
	s.cols = 300;
	s.timeout_ms = UINT64_MAX;
	s.kill_grace_ms = UINT32_MAX;
	s.drain_ms = 7;
	o.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_START;
	o.exec_start = &s;
	size_t n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(w.what, WIRE_EXEC_START);
	slice_is(w.start.id, "ex-1");
	slice_is(w.start.cwd, "/tmp");
	slice_is(w.start.user, "agent:video");
	assert_true(w.start.stdin_open && w.start.pty && w.start.no_new_privs);
	assert_int_equal(w.start.rows, 24);
	assert_int_equal(w.start.cols, 300);
	assert_true(w.start.timeout_ms == UINT64_MAX);
	assert_int_equal(w.start.kill_grace_ms, UINT32_MAX);
	assert_int_equal(w.start.drain_ms, 7);
	assert_int_equal(w.start.n_argv, 3);
	assert_int_equal(w.start.n_env, 2);
	char *av[4], *ev[3], bytes[64];
	assert_true(w.start.string_bytes <= sizeof(bytes));
	assert_int_equal(wire_exec_strings(&w.start, av, ev, bytes), 0);
	assert_string_equal(av[0], "/bin/sh");
	assert_string_equal(av[1], "");
	assert_string_equal(av[2], "x\xff y");
	assert_null(av[3]);
	assert_string_equal(ev[0], "A=1=2");
	assert_string_equal(ev[1], "EMPTY=");
	assert_null(ev[2]);
	/* Every cut of it is refused or a shorter message, never a crash. */
	for (size_t i = 0; i < n; i++)
		wire_decode_open(p, i, &w);
}

static void start_strings_refused(ProtobufCBinaryData arg, ProtobufCBinaryData name, ProtobufCBinaryData value)
{
	Dsec__Chronus__ExecStart s = DSEC__CHRONUS__EXEC_START__INIT;
	Dsec__Chronus__EnvVar v = DSEC__CHRONUS__ENV_VAR__INIT, *env = &v;
	Dsec__Chronus__ChronusOpen o = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	_cleanup_free_ uint8_t *p = NULL;
	struct wire_open w;
	char *av[2], *ev[2], bytes[64];
	v.name = name;
	v.value = value;
	s.n_argv = s.n_env = 1;
	s.argv = &arg;
	s.env = &env;
	o.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_START;
	o.exec_start = &s;
	size_t n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(wire_exec_strings(&w.start, av, ev, bytes), -EINVAL);
}

static void test_bad_strings(void **state)
{
	ProtobufCBinaryData nul = { 3, (uint8_t *)"a\0b" };
	start_strings_refused(nul, BYTES("A"), BYTES("1"));
	start_strings_refused(BYTES("x"), nul, BYTES("1"));
	start_strings_refused(BYTES("x"), BYTES("A"), nul);
	start_strings_refused(BYTES("x"), BYTES(""), BYTES("1"));
	start_strings_refused(BYTES("x"), BYTES("A=B"), BYTES("1"));
}

static void test_other_opens(void **state)
{
	Dsec__Chronus__ChronusOpen o = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	Dsec__Chronus__Hello h = DSEC__CHRONUS__HELLO__INIT;
	Dsec__Chronus__ExecAttach a = DSEC__CHRONUS__EXEC_ATTACH__INIT;
	Dsec__Chronus__FileRequest f = DSEC__CHRONUS__FILE_REQUEST__INIT;
	struct wire_open w;
	uint8_t *p;
	h.protocol = 1;
	o.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_HELLO;
	o.hello = &h;
	size_t n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(w.what, WIRE_HELLO);
	assert_int_equal(w.protocol, 1);
	free(p);
	a.id = (char *)"q";
	a.stdout_offset = 1ull << 40;
	a.stderr_offset = 5;
	o.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_ATTACH;
	o.exec_attach = &a;
	n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(w.what, WIRE_EXEC_ATTACH);
	assert_true(w.attach.out_offset[0] == 1ull << 40 && w.attach.out_offset[1] == 5);
	free(p);
	f.op = DSEC__CHRONUS__FILE_REQUEST__OP__TAR_IN;
	f.path = BYTES("/a");
	f.to = BYTES("/b");
	f.user = BYTES("u");
	f.offset = 9;
	f.length = UINT64_MAX;
	f.mode = 0755;
	f.parents = f.recursive = f.follow = f.overwrite = true;
	o.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_FILE;
	o.file = &f;
	n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(w.file.op, FILE_TAR_IN);
	slice_is(w.file.path, "/a");
	slice_is(w.file.to, "/b");
	slice_is(w.file.user, "u");
	assert_true(w.file.offset == 9 && w.file.length == UINT64_MAX && w.file.mode == 0755);
	assert_true(w.file.parents && w.file.recursive && w.file.follow && w.file.overwrite);
	free(p);
}

static void test_follow(void **state)
{
	Dsec__Chronus__ChronusOpen o = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	Dsec__Chronus__ExecStart s = DSEC__CHRONUS__EXEC_START__INIT;
	struct wire_open w;
	uint8_t *p;
	o.follow_bytes = 70000;
	size_t n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(w.what, WIRE_FOLLOW);
	assert_int_equal(w.follow_bytes, 70000);
	free(p);
	s.id = (char *)"x"; /* joined with its pieces */
	o.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_START;
	o.exec_start = &s;
	n = pack(&o.base, &p);
	assert_int_equal(wire_decode_open(p, n, &w), 0);
	assert_int_equal(w.what, WIRE_EXEC_START);
	free(p);
}

static void test_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {
		{ "", 0 },                                                     /* nothing asked */
		{ "\x12\x02\x08\x01", 4 },                                     /* id as a number */
		{ "\x10\x01", 2 },                                             /* exec_start as a number */
		{ "\x12\x05\x0a\x01", 4 },                                     /* length past the end */
		{ "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 },        /* length near 2^64 */
		{ "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 },    /* varint too long */
		{ "\x0b", 1 },                                                 /* group */
		{ "\x02\x00", 2 },                                             /* field 0 */
		{ "\x22\x02\x08\x09", 4 },                                     /* file operation 9 */
		{ "\x18\x80", 2 },                                             /* varint cut */
	};
	struct wire_open w;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(wire_decode_open(bad[i].bytes, bad[i].n, &w), -EBADMSG);
	/* Unknown fields of every wire type are skipped. */
	static const char known[] = "\xf8\x07\x05\xf9\x07" "12345678\xfd\x07" "1234\xfa\x07\x01z\x0a\x02\x08\x01";
	assert_int_equal(wire_decode_open(known, sizeof(known) - 1, &w), 0);
	assert_int_equal(w.what, WIRE_HELLO);
}

static void test_commands(void **state)
{
	Dsec__Chronus__ExecCommand c = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	Dsec__Chronus__ExecAck a = DSEC__CHRONUS__EXEC_ACK__INIT;
	Dsec__Chronus__ExecSignal s = DSEC__CHRONUS__EXEC_SIGNAL__INIT;
	Dsec__Chronus__ExecResize r = DSEC__CHRONUS__EXEC_RESIZE__INIT;
	Dsec__Chronus__ExecForget f = DSEC__CHRONUS__EXEC_FORGET__INIT;
	Dsec__Chronus__StdinEof e = DSEC__CHRONUS__STDIN_EOF__INIT;
	struct wire_command w;
	uint8_t *p;
	size_t n;
#define TRY(kind, member, what_, value)                          \
	c.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_##kind;   \
	c.member = value;                                         \
	n = pack(&c.base, &p);                                    \
	assert_int_equal(wire_decode_command(p, n, &w), 0);       \
	assert_int_equal(w.what, what_);                          \
	free(p);
	a.stdout_offset = 1ull << 50;
	a.stderr_offset = 3;
	TRY(ACK, ack, WIRE_ACK, &a);
	assert_true(w.out_offset[0] == 1ull << 50 && w.out_offset[1] == 3);
	s.signal = 15;
	s.whole_tree = s.by_user_kill = true;
	TRY(SIGNAL, signal, WIRE_SIGNAL, &s);
	assert_true(w.signal == 15 && w.whole_tree && w.by_user_kill);
	r.rows = 40;
	r.cols = 132;
	TRY(RESIZE, resize, WIRE_RESIZE, &r);
	assert_true(w.rows == 40 && w.cols == 132);
	TRY(STDIN_EOF, stdin_eof, WIRE_STDIN_EOF, &e);
	TRY(FORGET, forget, WIRE_FORGET, &f);
	assert_int_equal(wire_decode_command("", 0, &w), -EBADMSG);
}

static void test_hello_and_file_commands(void **state)
{
	Dsec__Chronus__HelloMessage h = DSEC__CHRONUS__HELLO_MESSAGE__INIT;
	Dsec__Chronus__DiskUsageReply u = DSEC__CHRONUS__DISK_USAGE_REPLY__INIT;
	Dsec__Chronus__FileCommand f = DSEC__CHRONUS__FILE_COMMAND__INIT;
	Dsec__Chronus__FileCommit m = DSEC__CHRONUS__FILE_COMMIT__INIT;
	struct wire_disk_usage w;
	uint64_t bytes = 1;
	uint8_t *p;
	u.token = 7;
	u.limit_bytes = 1ull << 40;
	u.used_bytes = 99;
	h.what_case = DSEC__CHRONUS__HELLO_MESSAGE__WHAT_DISK_USAGE_REPLY;
	h.disk_usage_reply = &u;
	size_t n = pack(&h.base, &p);
	assert_int_equal(wire_decode_hello_message(p, n, &w), 0);
	assert_true(w.token == 7 && w.limit_bytes == 1ull << 40 && w.used_bytes == 99);
	free(p);
	assert_int_equal(wire_decode_hello_message("", 0, &w), -ENOMSG);
	m.bytes = 1ull << 33;
	f.what_case = DSEC__CHRONUS__FILE_COMMAND__WHAT_COMMIT;
	f.commit = &m;
	n = pack(&f.base, &p);
	assert_int_equal(wire_decode_file_command(p, n, &bytes), 0);
	assert_true(bytes == 1ull << 33);
	free(p);
	m.bytes = 0; /* an empty file is committed too */
	n = pack(&f.base, &p);
	assert_int_equal(wire_decode_file_command(p, n, &bytes), 0);
	assert_true(bytes == 0);
	free(p);
	assert_int_equal(wire_decode_file_command("", 0, &bytes), -ENOMSG);
}

static void test_exec_reports(void **state)
{
	uint8_t p[512];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	struct wire_started s = { 42, 1ull << 35, 1234567890123, { 5, 6 }, true };
	wire_started(&o, &s);
	Dsec__Chronus__ExecReport *r = dsec__chronus__exec_report__unpack(NULL, o.n, p);
	assert_non_null(r);
	assert_int_equal(r->what_case, DSEC__CHRONUS__EXEC_REPORT__WHAT_STARTED);
	assert_int_equal(r->started->pid, 42);
	assert_true(r->started->stdin_offset == 1ull << 35 && r->started->stdin_closed);
	assert_true(r->started->started_at_ms == 1234567890123 && r->started->stdout_offset == 5 && r->started->stderr_offset == 6);
	dsec__chronus__exec_report__free_unpacked(r, NULL);

	struct wire_exited x = { true, true, true, true, true, 3, 9, 1, 1ull << 40, 3, { 1ull << 41, 8 } };
	o.n = 0;
	wire_exited(&o, &x);
	r = dsec__chronus__exec_report__unpack(NULL, o.n, p);
	assert_non_null(r);
	Dsec__Chronus__ExecExited *e = r->exited;
	assert_true(e->signaled && e->timed_out && e->user_killed && e->background_alive && e->drain_cut);
	assert_true(e->exit_code == 3 && e->signal == 9 && e->cpu_usec == 1 && e->max_rss_bytes == 1ull << 40 && e->wall_ms == 3);
	assert_true(e->stdout_total == 1ull << 41 && e->stderr_total == 8);
	dsec__chronus__exec_report__free_unpacked(r, NULL);

	o.n = 0;
	wire_failed(&o, "bad_cwd", "words");
	r = dsec__chronus__exec_report__unpack(NULL, o.n, p);
	assert_string_equal(r->failed->code, "bad_cwd");
	assert_string_equal(r->failed->message, "words");
	dsec__chronus__exec_report__free_unpacked(r, NULL);

	o.n = 0;
	wire_stdin_state(&o, 77, true);
	r = dsec__chronus__exec_report__unpack(NULL, o.n, p);
	assert_true(r->stdin_state->offset == 77 && r->stdin_state->closed);
	dsec__chronus__exec_report__free_unpacked(r, NULL);
}

static void test_hello_reply(void **state)
{
	uint8_t p[512];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	size_t mark;
	wire_hello_begin(&o, "0.1", &mark);
	wire_hello_exec(&o, "a", true);
	wire_hello_exec(&o, "b", false);
	pb_close(&o, mark);
	Dsec__Chronus__HelloMessage *h = dsec__chronus__hello_message__unpack(NULL, o.n, p);
	assert_non_null(h);
	assert_int_equal(h->reply->protocol, 1);
	assert_string_equal(h->reply->version, "0.1");
	assert_int_equal(h->reply->n_execs, 2);
	assert_true(h->reply->execs[0]->running && !h->reply->execs[1]->running);
	assert_string_equal(h->reply->execs[1]->id, "b");
	dsec__chronus__hello_message__free_unpacked(h, NULL);
	o.n = 0;
	wire_disk_usage_request(&o, 300);
	h = dsec__chronus__hello_message__unpack(NULL, o.n, p);
	assert_int_equal(h->disk_usage->token, 300);
	dsec__chronus__hello_message__free_unpacked(h, NULL);
}

static void test_file_reports(void **state)
{
	uint8_t p[1024];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	struct wire_entry e = { { (const uint8_t *)"na\xff", 3 }, { (const uint8_t *)"to", 2 }, 0100644, 1, 2, 3,
				1ull << 40, 1ull << 60, 9 };
	wire_file_stat(&o, &e);
	Dsec__Chronus__FileReport *r = dsec__chronus__file_report__unpack(NULL, o.n, p);
	assert_non_null(r);
	Dsec__Chronus__FileEntry *s = r->stat;
	assert_int_equal(s->name.len, 3);
	assert_memory_equal(s->name.data, "na\xff", 3);
	assert_int_equal(s->link.len, 2);
	assert_true(s->mode == 0100644 && s->uid == 1 && s->gid == 2 && s->nlink == 3 && s->size == 1ull << 40);
	assert_true(s->mtime_ns == 1ull << 60 && s->inode == 9);
	dsec__chronus__file_report__free_unpacked(r, NULL);
	o.n = 0;
	size_t mark = pb_open(&o, WIRE_FILE_ENTRIES);
	wire_file_entry(&o, &e);
	wire_file_entry(&o, &e);
	pb_close(&o, mark);
	r = dsec__chronus__file_report__unpack(NULL, o.n, p);
	assert_int_equal(r->entries->n_entries, 2);
	dsec__chronus__file_report__free_unpacked(r, NULL);
	o.n = 0;
	wire_file_done(&o, 10, 20);
	r = dsec__chronus__file_report__unpack(NULL, o.n, p);
	assert_true(r->done->bytes == 10 && r->done->entries == 20);
	dsec__chronus__file_report__free_unpacked(r, NULL);
	o.n = 0;
	wire_file_failed(&o, "disk_full", "m", 28);
	r = dsec__chronus__file_report__unpack(NULL, o.n, p);
	assert_string_equal(r->failed->code, "disk_full");
	assert_int_equal(r->failed->err, 28);
	dsec__chronus__file_report__free_unpacked(r, NULL);
}

static void test_a_full_buffer_is_remembered(void **state)
{
	static const uint8_t name[20];
	uint8_t p[64];
	struct wire_entry e = { { name, 20 }, { name, 20 }, 1, 1, 1, 1, 1, 1, 1 };
	for (size_t cap = 0; cap <= sizeof(p); cap++) {
		struct pb_out o = { .p = p, .cap = cap };
		wire_file_stat(&o, &e);
		assert_true(o.n <= cap);
		assert_true(o.full == (cap < 62)); /* 4 + 2 * 22 + 7 * 2 */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec_start),
		cmocka_unit_test(test_bad_strings),
		cmocka_unit_test(test_other_opens),
		cmocka_unit_test(test_follow),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_hello_and_file_commands),
		cmocka_unit_test(test_exec_reports),
		cmocka_unit_test(test_hello_reply),
		cmocka_unit_test(test_file_reports),
		cmocka_unit_test(test_a_full_buffer_is_remembered),
	};
	return cmocka_run_group_tests_name("chronus_wire", tests, NULL, NULL);
}
