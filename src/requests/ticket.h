/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.h - the names of requests that somebody may cancel. */
#ifndef FL_REQUESTS_TICKET_H
#define FL_REQUESTS_TICKET_H

#include <stdint.h>

#include "base/locked.h"
#include "fletch.h"
#include "scheduler/token_block.h"

/* Where a ticket leads: its place in the table, and a generation that makes old tickets invalid. */
typedef struct fl_ticket_entry {
    fl_request *request; /* NULL: free */
    uint32_t    generation;
    uint32_t    next_free;
} fl_ticket_entry;

typedef struct fl_tickets {
    fl_ticket_entry *entry; /* owned [capacity] */
    uint32_t         capacity, free;
} fl_tickets;

/* Gives the request its ticket. ENOMEM. */
FL_LOCKED int fl_ticket_take(fl_request *request, fletch_error *error);
/* Takes it away; nothing where it has none. */
FL_LOCKED void fl_ticket_drop(fl_request *request);
/* NULL: it is over, or there never was one of that name. */
FL_LOCKED fl_request *fl_ticket_find(const fletch_model *model, fletch_ticket ticket);

#endif
