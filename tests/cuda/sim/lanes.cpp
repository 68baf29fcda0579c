/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.cpp - a block of a CUDA kernel on one thread of the host: fibers, meetings, shared memory.
 *
 * In/Out  sim_launch (sim.h) runs a kernel's blocks one by one; a block's threads are fibers on
 *         small stacks. A fiber runs until it needs others: sim_meet writes down what it brings and
 *         goes back to the scheduler, which runs the warp's other lanes, checks that all 32 stand
 *         at the same primitive, works it out for all of them and lets them run on. A warp runs
 *         until it is done or at a barrier, far ahead of the others: what a missing barrier would
 *         spoil, spoils.
 * Order   SIM_ORDER in the environment: 0 or nothing runs blocks, warps and lanes from the first to
 *         the last, 1 from the last to the first, another number in an order of its own each time. A
 *         kernel without races gives the same bytes in all. races.cpp finds races without luck.
 * Switch  Registers that a call preserves go on the old stack and come from the new one (x86-64);
 *         other machines use ucontext, which is slower (a system call a switch).
 * Memory  Per OS thread: 1024 stacks, mapped when first used and given back with the thread.
 * Errors  A fiber that fails goes back to the scheduler for good and the launch ends there. */
#include <deque>
#include <memory>
#include <numeric>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#include "lanes.cuh"
#include "sim.h"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace {

constexpr unsigned LANES = 32, MOST_THREADS = 1024;
constexpr size_t   STACK_BYTES = 128 << 10, SHARED_BYTES = 48 << 10;

/* Where a switched-off computation stands. */
#if defined(__x86_64__)
struct context {
    void *stack_pointer;
};
extern "C" void sim_switch(context *from, const context *to);
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch, @function
sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq  %rsp, (%rdi)
    movq  (%rsi), %rsp
    popq  %r15
    popq  %r14
    popq  %r13
    popq  %r12
    popq  %rbx
    popq  %rbp
    ret
.size sim_switch, .-sim_switch
)");
/* The first switch returns into `entry` with the stack as a call leaves it. */
void prepare(context *c, char *stack, void (*entry)()) {
    uintptr_t top   = (reinterpret_cast<uintptr_t>(stack) + STACK_BYTES) & ~uintptr_t{15};
    void    **frame = reinterpret_cast<void **>(top) - 8;
    memset(frame, 0, 8 * sizeof *frame);
    frame[6]         = reinterpret_cast<void *>(entry);
    c->stack_pointer = frame;
}
#else
struct context {
    ucontext_t at;
};
void sim_switch(context *from, const context *to) {
    swapcontext(&from->at, &to->at);
}
void prepare(context *c, char *stack, void (*entry)()) {
    getcontext(&c->at);
    c->at.uc_stack.ss_sp   = stack;
    c->at.uc_stack.ss_size = STACK_BYTES;
    c->at.uc_link          = nullptr;
    makecontext(&c->at, entry, 0);
}
#endif

/* A copy that was started and not yet waited for. */
struct copy {
    sim_copy what;
    unsigned group;
};

/* A way through n things that passes each once: i -> i * step + start. */
struct way {
    unsigned n, step, start;

    unsigned at(unsigned i) const {
        return static_cast<unsigned>((uint64_t{i} * step + start) % n);
    }
};

struct fiber {
    context          at;
    bool             done;
    sim_meeting      meeting; /* op SIM_RUN: may run */
    uint64_t         answer;
    unsigned         group; /* groups committed */
    std::deque<copy> copies;
};

/* Shared arrays of the block that runs: by name and line, in the order of their first use. */
struct shared_array {
    const char *name;
    int         line;
    size_t      bytes, offset;
};

struct machine {
    char                     *stacks = nullptr;
    std::unique_ptr<fiber[]>  fibers;
    context                   scheduler;
    const sim_kernel         *kernel = nullptr;
    const void               *param  = nullptr;
    sim_place                 here{};
    fiber                    *running = nullptr;
    unsigned                  threads = 0, order = 0, dice = 0;
    uint32_t                  launches                    = 0;
    uint32_t                  syncs[MOST_THREADS / LANES] = {}; /* warp_sync of each warp */
    bool                      failed                      = false;
    std::vector<shared_array> arrays;
    size_t                    shared_used = 0;
    alignas(128) char shared[SHARED_BYTES];
    char error[512] = "";
    ~machine() {
        if (stacks != nullptr) {
            munmap(stacks, STACK_BYTES * MOST_THREADS);
        }
    }
};

thread_local std::unique_ptr<machine> mine;
thread_local machine                 *m;
const sim_kernel                     *kernels;

void say(const char *what) {
    m->failed = true;
    snprintf(m->error, sizeof m->error, "%s, block (%u, %u), thread %u: %s",
             m->kernel ? m->kernel->name : "?", m->here.block_x, m->here.block_y, m->here.thread,
             what);
}

const char *op_name(sim_op op) {
    static const char *const names[] = {"running",    "block_sync", "warp_sync", "shuffle_xor",
                                        "shuffle_up", "ballot",     "mma"};
    return names[op];
}

/* Numbers of the warp's matrices: lane 4g + t holds neighbours along k. */
float element(bool bf16, uint32_t word, unsigned upper) {
    uint16_t bits = static_cast<uint16_t>(word >> 16 * upper);
    return bf16 ? sim_bfloat_float(bits) : sim_half_float(bits);
}

void work_mma(fiber *lanes) {
    float a[16][16], b[8][16];
    bool  bf16 = lanes[0].meeting.bf16;
    for (unsigned lane = 0; lane < LANES; lane++) {
        const sim_meeting &from = lanes[lane].meeting;
        unsigned           g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 8; i++) { /* word i / 2: rows g, g + 8, then the same at k + 8 */
            unsigned k                = 2 * t + i % 2 + (i / 4) * 8;
            a[g + (i / 2 % 2) * 8][k] = element(bf16, from.a[i / 2], i % 2);
        }
        for (unsigned i = 0; i < 4; i++) {
            b[g][2 * t + i % 2 + (i / 2) * 8] = element(bf16, from.b[i / 2], i % 2);
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < 4; i++) {
            const float *row = a[lane / 4 + (i / 2) * 8], *column = b[lane % 4 * 2 + i % 2];
            double       sum = static_cast<double>(lanes[lane].meeting.c[i]);
            for (unsigned k = 0; k < 16; k++) {
                sum += static_cast<double>(row[k]) * static_cast<double>(column[k]);
            }
            lanes[lane].meeting.c[i] = static_cast<float>(sum);
        }
    }
}

/* All lanes of the warp are at one primitive: give each its answer. */
void work(fiber *lanes) {
    uint32_t votes = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        votes |= static_cast<uint32_t>(lanes[lane].meeting.value & 1) << lane;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned argument  = static_cast<unsigned>(lanes[lane].meeting.argument);
        lanes[lane].answer = votes;
        if (lanes[lane].meeting.op == SIM_XOR) {
            lanes[lane].answer = lanes[(lane ^ argument) % LANES].meeting.value;
        }
        if (lanes[lane].meeting.op == SIM_UP) {
            lanes[lane].answer = lanes[lane >= argument ? lane - argument : lane].meeting.value;
        }
    }
    if (lanes[0].meeting.op == SIM_MMA) {
        work_mma(lanes);
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        lanes[lane].meeting.op = SIM_RUN;
    }
}

/* True when the warp met at a primitive of its own and may go on. */
bool meet(unsigned warp) {
    fiber   *lanes = m->fibers.get() + warp * LANES;
    unsigned ended = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        ended += lanes[lane].done;
    }
    if (ended == LANES) {
        return false;
    }
    const sim_meeting *first = nullptr;
    for (unsigned lane = 0; lane < LANES; lane++) {
        const sim_meeting &at = lanes[lane].meeting;
        first                 = first == nullptr && !lanes[lane].done ? &at : first;
        char text[160];
        if (ended > 0) {
            m->here.thread = warp * LANES + lane;
            snprintf(text, sizeof text,
                     "%u lanes of the warp have ended, another waits at %s, line %d", ended,
                     op_name(first ? first->op : at.op), first ? first->line : at.line);
        } else if (at.op != first->op || at.line != first->line || at.argument != first->argument) {
            m->here.thread = warp * LANES + lane;
            snprintf(text, sizeof text,
                     "at %s, line %d, but the warp's first lane is at %s, line %d", op_name(at.op),
                     at.line, op_name(first->op), first->line);
        } else {
            continue;
        }
        if (first != nullptr) {
            say(text);
            return false;
        }
    }
    if (first->op == SIM_BLOCK_SYNC) {
        return false;
    }
    m->syncs[warp] += first->op == SIM_WARP_SYNC;
    work(lanes);
    return true;
}

void fiber_main() {
    m->kernel->body(m->param);
    m->running->done = true;
    sim_switch(&m->running->at, &m->scheduler);
    abort(); /* nobody runs a fiber that is done */
}

way through(unsigned n) {
    if (m->order < 2) {
        return m->order == 0 ? way{n, 1, 0} : way{n, n - 1, n - 1};
    }
    way w = {n, 0, 0};
    do {
        m->dice = m->dice * 1664525u + 1013904223u;
        w.step  = 1 + (m->dice >> 8) % n;
        w.start = (m->dice >> 16) % n;
    } while (std::gcd(w.step, n) != 1);
    return w;
}

/* Each lane that may run runs to its next meeting. */
void run_lanes(unsigned warp) {
    way lanes         = through(LANES);
    m->here.warp_sync = m->syncs[warp];
    for (unsigned i = 0; i < LANES && !m->failed; i++) {
        unsigned thread = warp * LANES + lanes.at(i);
        fiber   *f      = &m->fibers[thread];
        if (f->done || f->meeting.op != SIM_RUN) {
            continue;
        }
        m->running     = f;
        m->here.thread = thread;
        sim_switch(&m->scheduler, &f->at);
    }
}

/* All warps are done or at a barrier: either all threads of the block are at the same one, or a
 * device would wait for ever. False when the block is done or failed. */
bool pass_barrier() {
    unsigned done = 0, line = 0;
    for (unsigned t = 0; t < m->threads; t++) {
        const fiber &f = m->fibers[t];
        m->here.thread = t;
        done += f.done;
        if (f.done) {
            continue;
        }
        if (line != 0 && line != static_cast<unsigned>(f.meeting.line)) {
            say("two warps wait at different barriers");
            return false;
        }
        line = static_cast<unsigned>(f.meeting.line);
    }
    if (done == m->threads) {
        return false;
    }
    if (done > 0) {
        say("threads of the block have ended, others wait at a barrier");
        return false;
    }
    for (unsigned t = 0; t < m->threads; t++) {
        m->fibers[t].meeting.op = SIM_RUN;
    }
    m->here.barrier++;
    return true;
}

void run_block() {
    unsigned warps = m->threads / LANES;
    m->arrays.clear();
    m->shared_used  = 0;
    m->here.barrier = 0;
    memset(m->syncs, 0, sizeof m->syncs);
    memset(m->shared, 0xff, sizeof m->shared); /* NaN in every type */
    for (unsigned t = 0; t < m->threads; t++) {
        fiber *f      = &m->fibers[t];
        f->done       = false;
        f->meeting.op = SIM_RUN;
        f->group      = 0;
        f->copies.clear();
        prepare(&f->at, m->stacks + t * STACK_BYTES, fiber_main);
    }
    do {
        way order = through(warps);
        for (unsigned i = 0; i < warps && !m->failed; i++) {
            unsigned warp = order.at(i);
            do {
                run_lanes(warp);
            } while (!m->failed && meet(warp));
        }
    } while (!m->failed && pass_barrier());
}

const sim_kernel *find(const char *name) {
    const sim_kernel *k = kernels;
    while (k != nullptr && strcmp(k->name, name) != 0) {
        k = k->next;
    }
    return k;
}

/* The calling thread's machine, made when first needed. */
bool start_machine() {
    if (mine == nullptr) {
        mine         = std::make_unique<machine>();
        mine->fibers = std::make_unique<fiber[]>(MOST_THREADS);
        void *at     = mmap(nullptr, STACK_BYTES * MOST_THREADS, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mine->stacks = at == MAP_FAILED ? nullptr : static_cast<char *>(at);
    }
    const char *order = getenv("SIM_ORDER");
    m                 = mine.get();
    m->failed         = false;
    m->order          = order != nullptr ? static_cast<unsigned>(strtoul(order, nullptr, 10)) : 0;
    m->dice += m->order;
    return m->stacks != nullptr;
}

} // namespace

sim_kernel::sim_kernel(const char *n, size_t bytes, unsigned most, void (*run)(const void *))
    : name(n), param_size(bytes), threads(most), body(run), next(kernels) {
    kernels = this;
}

const sim_place &sim_here() {
    return m->here;
}

/* The thread's own place is the scheduler's to set: another lane has run meanwhile. */
uint64_t sim_meet(const sim_meeting &meeting) {
    fiber *self   = m->running;
    self->meeting = meeting;
    sim_switch(&self->at, &m->scheduler);
    return self->answer;
}

void sim_fail(const char *what, const void *at) {
    char text[160];
    snprintf(text, sizeof text, "%s at %p", what, at);
    say(text);
    sim_switch(&m->running->at, &m->scheduler);
    abort();
}

void *sim_shared(const char *name, int line, size_t bytes) {
    for (const shared_array &array : m->arrays) {
        if (array.line == line && array.bytes == bytes && strcmp(array.name, name) == 0) {
            return m->shared + array.offset;
        }
    }
    size_t offset = m->shared_used;
    if (offset + bytes > SHARED_BYTES) {
        sim_fail("more than 48 KiB of shared memory", name);
    }
    m->arrays.push_back({name, line, bytes, offset});
    m->shared_used = (offset + bytes + 15) & ~size_t{15};
    return m->shared + offset;
}

void sim_copy_started(void *shared, const void *global) {
    const char *to = static_cast<const char *>(shared);
    if (to < m->shared || to + 16 > m->shared + m->shared_used) {
        sim_fail("asynchronous copy outside of shared memory", shared);
    }
    m->running->copies.push_back({{shared, global}, m->running->group});
}

void sim_copies_commit() {
    m->running->group++;
}

bool sim_copy_arrived(unsigned left, sim_copy &out) {
    fiber *self = m->running;
    if (self->copies.empty() || self->copies.front().group + left >= self->group) {
        return false;
    }
    out = self->copies.front().what;
    self->copies.pop_front();
    return true;
}

sim_memory sim_memory_of(const void *at) {
    const char *byte = static_cast<const char *>(at);
    if (m == nullptr || m->running == nullptr ||
        (byte >= m->stacks && byte < m->stacks + STACK_BYTES * MOST_THREADS)) {
        return SIM_OWN;
    }
    return byte >= m->shared && byte < m->shared + SHARED_BYTES ? SIM_SHARED : SIM_GLOBAL;
}

extern "C" int sim_has(const char *name) {
    return find(name) != nullptr;
}

extern "C" size_t sim_param_size(const char *name) {
    const sim_kernel *k = find(name);
    return k != nullptr ? k->param_size : 0;
}

extern "C" const char *sim_error(void) {
    return mine != nullptr ? mine->error : "";
}

extern "C" int sim_launch(const char *name, const unsigned grid[3], const unsigned block[3],
                          size_t shared_bytes, const void *param) {
    if (!start_machine()) {
        return -1;
    }
    m->kernel = find(name);
    m->here   = {};
    if (m->kernel == nullptr) {
        snprintf(m->error, sizeof m->error, "%s: no kernel of that name", name);
        return -1;
    }
    m->threads = block[0];
    if (block[1] != 1 || block[2] != 1 || grid[2] != 1 || shared_bytes != 0 || grid[0] == 0 ||
        grid[1] == 0 || grid[1] > 65535 || block[0] == 0 || block[0] % LANES != 0 ||
        block[0] > m->kernel->threads) {
        say("a grid, block or shared memory that the kernel is not made for");
        return -1;
    }
    std::vector<char> copied(m->kernel->param_size); /* as a device has it: its own copy */
    memcpy(copied.data(), param, copied.size());
    m->param       = copied.data();
    m->here.grid_x = grid[0];
    m->here.grid_y = grid[1];
    m->here.launch = ++m->launches;
    way order      = through(grid[0] * grid[1]);
    for (unsigned i = 0; i < order.n && !m->failed; i++) {
        unsigned at     = order.at(i);
        m->here.block_x = at % grid[0];
        m->here.block_y = at / grid[0];
        run_block();
    }
    m->running = nullptr;
    return m->failed ? -1 : 0;
}
