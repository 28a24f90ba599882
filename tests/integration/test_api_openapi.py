"""Holds api/openapi.yaml, the route table, the error codes and the answers together.

The file is read line by line (its own layout: two blanks a level), so that no YAML library is needed.
"""
import re
import unittest

from api_help import ApiTest
from harness import ROOT

SPEC = (ROOT / "api" / "openapi.yaml").read_text()


def block(lines, header, indent):
    """The lines below `header` at `indent` blanks."""
    start = lines.index(" " * indent + header)
    out = []
    for line in lines[start + 1:]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        out.append(line)
    return out


def spec_operations():
    """{(METHOD, path): set of query parameters}"""
    out, path, method, shared = {}, None, None, []
    for line in block(SPEC.splitlines(), "paths:", 0):
        if m := re.fullmatch(r"  (/\S*):", line):
            path, method, shared = m[1], None, []
        elif m := re.fullmatch(r"    (get|put|post|delete):", line):
            method = m[1].upper()
            out[method, path] = {{"Path": "path", "User": "user"}[s] for s in shared if s in ("Path", "User")}
        elif m := re.search(r'\$ref: "#/components/parameters/(\w+)"', line):
            shared.append(m[1])
        elif (m := re.fullmatch(r"        - name: (\w+)", line)) and method:
            out[method, path].add(m[1])
    return out


def table_operations():
    """The same of src/control/routes.c."""
    text = (ROOT / "src" / "control" / "routes.c").read_text()
    text = text.replace('SB "', '"/v1/sandboxes/{id}').replace("SB,", '"/v1/sandboxes/{id}",')
    out = {}
    for m in re.finditer(r'\{ "(\w+)", "([^"]+)", \w+, \w+,\s*(NULL|QUERY\(([^)]*)\))', text):
        out[m[1], m[2]] = set(re.findall(r'"(\w+)"', m[4] or ""))
    return out


def schema(name):
    lines = block(block(SPEC.splitlines(), "components:", 0), "schemas:", 2)
    return "\n".join(block(lines, f"{name}:", 4))


def required(name):
    text = schema(name)
    return set(re.findall(r"\w+", re.search(r"required: \[([^\]]*)\]", text)[1]))


class OpenApi(ApiTest):
    def test_every_route_is_described(self):
        spec, table = spec_operations(), table_operations()
        self.assertGreater(len(table), 25)
        self.assertEqual(spec, table)

    def test_every_error_code_is_listed(self):
        source = (ROOT / "src" / "base" / "errcodes.h").read_text()
        codes = re.findall(r'^\tX\([A-Z_]+, "(\w+)"', source, re.M)
        listed = [l.strip("- ") for l in schema("ErrorCode").splitlines() if l.startswith("        - ")]
        self.assertEqual(listed, codes)

    def test_every_reference_leads_somewhere(self):
        lines = block(SPEC.splitlines(), "components:", 0)
        for kind, name in set(re.findall(r'#/components/(\w+)/(\w+)"', SPEC)):
            self.assertIn(f"    {name}:", block(lines, f"{kind}:", 2), f"{kind}/{name}")

    def test_bounds_agree_with_the_server(self):
        limits = self.client.call("GET", "/v1/limits")["limits"]
        for field, low, high in (("memory_mb", "memory_mb_min", "memory_mb_max"), ("pids", "pids_min", "pids_max"),
                                 ("disk_mb", "disk_mb_min", "disk_mb_max"),
                                 ("ttl_seconds", "ttl_seconds_min", "ttl_seconds_max")):
            m = re.search(rf"{field}: {{type: \w+, minimum: (\d+), maximum: (\d+)", SPEC)
            self.assertEqual((int(m[1]), int(m[2])), (limits[low], limits[high]), field)
        self.assertIn(f"maxItems: {limits['argv_members']}", SPEC)
        self.assertIn(f"maxLength: {limits['arg_bytes']}", SPEC)
        self.assertIn(f"maxLength: {limits['path_bytes']}", SPEC)
        self.assertIn(f"at most {limits['argv_total_bytes']} bytes in all", SPEC)

    def test_answers_have_the_fields(self):
        layer = self.api.layer()
        self.assertEqual(set(layer), required("Layer"))
        sandbox = self.api.sandbox()
        self.assertEqual(set(sandbox), required("Sandbox"))
        self.assertEqual(set(sandbox["usage"]), required("Usage"))
        execs = f"/v1/sandboxes/{sandbox['id']}/execs"
        exec_ = self.client.call("POST", f"{execs}?wait=true", {"argv": ["both"]})
        self.assertEqual(set(exec_), required("Exec") | {"stdout_b64", "stderr_b64"})
        edge = self.client.call("GET", "/v1/edges")["edges"][0]
        listed = set(re.findall(r"^        (\w+):", schema("Edge"), re.M))
        self.assertEqual(set(edge), listed)
        asked = set(re.findall(r"^        (\w+):", schema("SandboxCreate"), re.M))
        for field in asked - {"environment"}:  # each is known to the server: a wrong type is a bad field
            self.fails(400, "bad_field", "POST", "/v1/sandboxes", {"environment": "base", field: None})


if __name__ == "__main__":
    unittest.main()
