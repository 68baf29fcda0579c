/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - the part of json-c's interface that fletch uses, for machines that have no json-c.
 *
 * Role    Found in place of json-c when CMake runs with FLETCH_MINIMAL=ON (a bare machine to measure on,
 *         see bench/gpu/README.md). What is shipped is built with json-c.
 * Method  A tree of plain arrays. base/json_scan.c has checked the text before it gets here, so that the
 *         parser only takes apart what is known to be valid. Members are looked for one after the other,
 *         from the last: of a key that stands twice the later value counts, as in json-c. */
#ifndef FL_BENCH_GPU_JSON_H
#define FL_BENCH_GPU_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type {
    json_type_null,
    json_type_boolean,
    json_type_double,
    json_type_int,
    json_type_object,
    json_type_array,
    json_type_string
};

enum json_tokener_error { json_tokener_success, json_tokener_continue, json_tokener_error_memory };

struct json_object;
struct json_tokener;

struct json_tokener *json_tokener_new_ex(int depth);
struct json_object *json_tokener_parse_ex(struct json_tokener *tokener, const char *text, int size);
enum json_tokener_error json_tokener_get_error(const struct json_tokener *tokener);
const char             *json_tokener_error_desc(enum json_tokener_error error);
void                    json_tokener_free(struct json_tokener *tokener);

enum json_type json_object_get_type(const struct json_object *json); /* NULL: null, as everywhere */
bool           json_object_is_type(const struct json_object *json, enum json_type type);
const char    *json_object_get_string(const struct json_object *json); /* of a string; else NULL */
int            json_object_get_string_len(const struct json_object *json);
bool           json_object_get_boolean(const struct json_object *json);
int32_t        json_object_get_int(const struct json_object *json);
int64_t        json_object_get_int64(const struct json_object *json);
uint64_t       json_object_get_uint64(const struct json_object *json);
double         json_object_get_double(const struct json_object *json);

size_t              json_object_array_length(const struct json_object *json);
struct json_object *json_object_array_get_idx(const struct json_object *json, size_t index);

struct json_object *json_object_new_object(void);
int  json_object_object_add(struct json_object *json, const char *key, struct json_object *value);
int  json_object_object_length(const struct json_object *json);
bool json_object_object_get_ex(const struct json_object *json, const char *key,
                               struct json_object **value);
struct json_object *json_object_object_get(const struct json_object *json, const char *key);
int                 json_object_put(struct json_object *json);

/* Member `index` of an object; false past the last. */
bool json_object_member(const struct json_object *json, size_t index, const char **key,
                        struct json_object **value);

#define json_object_object_foreach(json, key, value)                                               \
    const char         *key   = NULL;                                                              \
    struct json_object *value = NULL;                                                              \
    for (size_t index_of_##key = 0; json_object_member(json, index_of_##key, &key, &value);        \
         index_of_##key++)

#endif
