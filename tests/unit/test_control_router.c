/* test_control_router.c: paths to routes, and the API's own table. */
#include "unit.h"
#include "control/resources.h"
#include "control/router.h"

static void nothing(struct request *r)
{
}

static const struct route table[] = {
	{ "GET", "/a", ROUTE_BODY_NONE, true, NULL, nothing },
	{ "POST", "/a", ROUTE_BODY_JSON, false, NULL, nothing },
	{ "GET", "/a/{x}", ROUTE_BODY_NONE, false, NULL, nothing },
	{ "GET", "/a/{x}/b/{y}", ROUTE_BODY_NONE, false, NULL, nothing },
	{ "PUT", "/a/fixed", ROUTE_BODY_NONE, false, NULL, nothing },
};

static const struct route *find(const char *method, const char *path, struct route_match *m)
{
	route_find(table, 5, method, path, m);
	return m->route;
}

static void matches(void **state)
{
	struct route_match m;
	assert_ptr_equal(find("GET", "/a", &m), &table[0]);
	assert_ptr_equal(find("HEAD", "/a", &m), &table[0]);
	assert_ptr_equal(find("POST", "/a", &m), &table[1]);
	assert_ptr_equal(find("GET", "/a/one", &m), &table[2]);
	assert_string_equal(m.vars[0], "one");
	assert_ptr_equal(find("GET", "/a/one/b/two", &m), &table[3]);
	assert_string_equal(m.vars[0], "one");
	assert_string_equal(m.vars[1], "two");
}

static void tells_method_from_path(void **state)
{
	struct route_match m;
	assert_null(find("DELETE", "/a", &m));
	assert_true(m.path_known);
	assert_string_equal(m.allow, "GET, HEAD, POST");
	assert_null(find("DELETE", "/a/fixed", &m));
	assert_string_equal(m.allow, "GET, HEAD, PUT");
	assert_null(find("GET", "/b", &m));
	assert_false(m.path_known);
}

static void refuses_odd_paths(void **state)
{
	static const char *const odd[] = { "", "/", "a", "*", "//a", "/a/", "/a//b", "/a/x/b", "/a/x/b/y/z", "/A",
					   "/a/x/b/", "/1/2/3/4/5/6/7/8/9" };
	struct route_match m;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_null(find("GET", odd[i], &m));
		assert_false(m.path_known);
	}
	char path[ROUTE_PATH_MAX + 3];
	memset(path, 'x', sizeof(path));
	memcpy(path, "/a/", 3);
	path[ROUTE_PATH_MAX + 1] = 0; /* one over */
	assert_null(find("GET", path, &m));
	path[ROUTE_PATH_MAX] = 0; /* at the limit */
	assert_ptr_equal(find("GET", path, &m), &table[2]);
}

/* Every route of the API is reached by its own template, so none hides another. */
static void api_table_is_reachable(void **state)
{
	struct route_match m;
	for (size_t i = 0; i < api_routes_count; i++) {
		route_find(api_routes, api_routes_count, api_routes[i].method, api_routes[i].template, &m);
		assert_ptr_equal(m.route, &api_routes[i]);
		assert_non_null(api_routes[i].handle);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(matches), cmocka_unit_test(tells_method_from_path),
					    cmocka_unit_test(refuses_odd_paths),
					    cmocka_unit_test(api_table_is_reachable) };
	return cmocka_run_group_tests_name("control router", tests, NULL, NULL);
}
