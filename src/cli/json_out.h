/* json_out.h: writing JSON and tables for people and programs. Stateless. */
#pragma once
#include <stddef.h>
#include <stdio.h>

/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void json_string_out(FILE *f, const char *text);
/* JSON text, indented by two spaces. The text must be valid. */
void json_pretty_out(FILE *f, const char *json);
/* {"NAME":[...]} of texts that are JSON each. */
void json_list_out(FILE *f, const char *name, const char *(*item)(size_t i, void *user), size_t n, void *user);
void base64_out(FILE *f, const void *data, size_t n);

/* "512 B", "1.5 MiB" */
const char *format_bytes(char ret[32], unsigned long long bytes);
/* "12s", "5m", "3h", "2d" since a time (seconds since 1970); "-" for 0. */
const char *format_age(char ret[32], double since);
