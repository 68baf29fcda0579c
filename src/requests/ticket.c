/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.c - the names of requests that somebody may cancel.
 *
 * Method  A ticket is an index in a table and a generation: cancelling is a lookup, and an old ticket finds nothing.
 * Memory  The table doubles when it is full; entries are used again. Threads: see request.h.
 * Proof   tests/stress/test_submit.c. */
#include "requests/ticket.h"

#include <assert.h>

#include "base/error.h"
#include "base/mem.h"
#include "requests/open_model.h"

enum { TICKETS_FIRST = 64 };
#define NO_TICKET UINT32_MAX /* an enum constant is an int */

static int grow(fl_tickets *tickets, fletch_error *error) {
    uint32_t         capacity = tickets->capacity ? 2 * tickets->capacity : TICKETS_FIRST;
    fl_ticket_entry *entry    = fl_realloc_array(tickets->entry, capacity, sizeof *entry);
    if (!entry)
        return fl_fail_nomem(error, capacity * sizeof *entry, "the table of requests");
    for (uint32_t i = tickets->capacity; i < capacity; i++)
        entry[i] =
            (fl_ticket_entry){.generation = 1, .next_free = i + 1 < capacity ? i + 1 : NO_TICKET};
    tickets->free     = tickets->capacity;
    tickets->entry    = entry;
    tickets->capacity = capacity;
    return FLETCH_OK;
}

int fl_ticket_take(fl_request *request, fletch_error *error) {
    fl_tickets *tickets = &request->model->tickets;
    assert(request->ticket == 0);
    if (tickets->capacity == 0 || tickets->free == NO_TICKET)
        FL_TRY(grow(tickets, error));
    uint32_t         index = tickets->free;
    fl_ticket_entry *entry = &tickets->entry[index];
    assert(index < tickets->capacity && !entry->request && entry->generation > 0);
    tickets->free   = entry->next_free;
    entry->request  = request;
    request->ticket = (fletch_ticket)entry->generation << 32 | index;
    return FLETCH_OK;
}

void fl_ticket_drop(fl_request *request) {
    if (!request->ticket)
        return;
    fl_tickets *tickets = &request->model->tickets;
    uint32_t    index   = (uint32_t)request->ticket;
    assert(index < tickets->capacity && tickets->entry[index].request == request);
    fl_ticket_entry *entry = &tickets->entry[index];
    entry->request         = NULL;
    entry->generation = entry->generation == UINT32_MAX ? 1 : entry->generation + 1; /* 0: none */
    entry->next_free  = tickets->free;
    tickets->free     = index;
    request->ticket   = 0;
}

fl_request *fl_ticket_find(const fletch_model *model, fletch_ticket ticket) {
    const fl_tickets *tickets = &model->tickets;
    uint32_t          index   = (uint32_t)ticket;
    fl_request       *request =
        ticket && index < tickets->capacity ? tickets->entry[index].request : NULL;
    return request && request->ticket == ticket ? request : NULL;
}
