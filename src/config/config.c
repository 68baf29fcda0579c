/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - one slot per option, holding the value of the highest-ranked source that set it.
 *
 * Role    The public fletch_config_* calls, the typed getters of the rooms above, and
 *         fl_config_assign, through which every source goes.
 * Method  A source writes a slot only when its rank (flag > environment > file > preset > default)
 *         is at least that of the value there; so the result does not depend on the order in which
 *         a program loads its sources, and among equals the later call wins.
 * Memory  A slot owns its text and its origin's text, both made before the old ones are freed: a
 *         failed set leaves the configuration as it was.
 * Threads One at a time; fletch_open works on a clone. Proof: tests/unit/test_config.c. */
#include "config/config.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "config/config_internal.h"

typedef struct config_slot {
    fl_config_value value;
    char           *origin; /* owned; NULL for the default */
    fletch_origin   rank;
    bool            foreign;
} config_slot;

struct fletch_config {
    config_slot slots[FL_KEY_COUNT];
    fl_log      log;
};

fletch_config *fletch_config_new(void) {
    fl_config *config = fl_alloc_zero(1, sizeof *config);
    if (config == NULL)
        return NULL;
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const fletch_option *option = fl_option((fl_key)key);
        if (fl_value_parse((fl_key)key, option->default_value, option->key,
                           &config->slots[key].value, NULL) < 0) {
            fletch_config_free(config); /* out of memory: the unit test proves the defaults valid */
            return NULL;
        }
    }
    return config;
}

void fletch_config_free(fletch_config *config) {
    if (config == NULL)
        return;
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        fl_free(config->slots[key].value.text);
        fl_free(config->slots[key].origin);
    }
    fl_free(config);
}

fl_config *fl_config_clone(const fl_config *config) {
    fl_config *copy = fl_alloc_zero(1, sizeof *copy);
    if (copy == NULL)
        return NULL;
    copy->log = config->log;
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const config_slot *from = &config->slots[key];
        config_slot       *to   = &copy->slots[key];
        to->rank                = from->rank;
        to->foreign             = from->foreign;
        to->value               = from->value;
        to->value.text          = fl_strdup(from->value.text);
        to->origin              = from->origin == NULL ? NULL : fl_strdup(from->origin);
        if (to->value.text == NULL || (from->origin != NULL && to->origin == NULL)) {
            fletch_config_free(copy);
            return NULL;
        }
    }
    return copy;
}

int fl_config_assign(fl_config *config, fl_key key, const char *text,
                     const fl_config_source *source, const char *place, fletch_error *error) {
    config_slot    *slot = &config->slots[key];
    fl_config_value value;
    /* The value is checked even where a higher rank hides it: a mistake in a file should not wait
     * for the day the flag is left out. */
    const int status = fl_value_parse(key, text, place, &value, error);
    if (status < 0)
        return status;
    if (source->rank < slot->rank) {
        fl_free(value.text);
        return 0;
    }
    char *origin_copy = fl_strdup(source->origin);
    if (origin_copy == NULL) {
        fl_free(value.text);
        return fl_fail_nomem(error, strlen(source->origin), "the origin of a configuration value");
    }
    fl_free(slot->value.text);
    fl_free(slot->origin);
    slot->value   = value;
    slot->origin  = origin_copy;
    slot->rank    = source->rank;
    slot->foreign = source->foreign;
    return 0;
}

int fletch_config_set(fletch_config *config, const char *key, const char *value,
                      fletch_error *error) {
    fl_error_clear(error);
    if (config == NULL || key == NULL || value == NULL)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "fletch_config_set: configuration, key and value must not be NULL");
    fl_key found;
    if (!fl_key_find(key, &found))
        return fl_key_unknown("", key, error);
    const fl_config_source flag = {.rank = FLETCH_ORIGIN_FLAG, .origin = "flag"};
    return fl_config_assign(config, found, value, &flag, key, error);
}

const char *fletch_config_get(const fletch_config *config, const char *key, const char **origin) {
    fl_key found;
    if (config == NULL || key == NULL || !fl_key_find(key, &found))
        return NULL;
    if (origin != NULL)
        *origin = fl_config_origin(config, found);
    return config->slots[found].value.text;
}

void fletch_config_set_log(fletch_config *config, fletch_log_fn log, void *user) {
    if (config == NULL)
        return;
    config->log.fn   = log;
    config->log.user = user;
}

void fletch_config_set_trace_log(fletch_config *config, int on) {
    if (config != NULL)
        config->log.trace = on != 0;
}

/* ---- For the rooms above --------------------------------------------------------------------- */

bool fl_config_bool(const fl_config *config, fl_key key) {
    return config->slots[key].value.integer != 0;
}

int64_t fl_config_int(const fl_config *config, fl_key key) {
    return config->slots[key].value.integer;
}

double fl_config_float(const fl_config *config, fl_key key) {
    return config->slots[key].value.number;
}

const char *fl_config_text(const fl_config *config, fl_key key) {
    return config->slots[key].value.text;
}

bool fl_config_is_set(const fl_config *config, fl_key key) {
    return config->slots[key].rank > FLETCH_ORIGIN_DEFAULT;
}

bool fl_config_is_foreign(const fl_config *config, fl_key key) {
    return config->slots[key].foreign;
}

const char *fl_config_origin(const fl_config *config, fl_key key) {
    const char *origin = config->slots[key].origin;
    return origin == NULL ? "default" : origin;
}

fletch_origin fl_config_rank(const fl_config *config, fl_key key) {
    return config->slots[key].rank;
}

const fl_log *fl_config_log(const fl_config *config) {
    return &config->log;
}

const char *fletch_config_model(const fletch_config *config) {
    const config_slot *id    = &config->slots[FL_KEY_MODEL_ID];
    const config_slot *level = &config->slots[FL_KEY_MODEL_LEVEL];
    return level->rank > id->rank ? level->value.text : id->value.text;
}
