/* SPDX-License-Identifier: Apache-2.0 */
/* A signal after every instruction, by the processor's trap flag: twenty times as fast as a debugger in another process. The
 * handler may not be instrumented nor go through a sanitizer's wrappers: it runs between any two instructions. */
#ifndef PAWL_TESTS_TRAP_H
#define PAWL_TESTS_TRAP_H

#include "tests/check.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define TRAP_FLAG 0x100
#define PLAIN __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

PLAIN static void trap_die(void)
{
    long pid, rc;
    __asm__ volatile("syscall" : "=a"(pid) : "a"(SYS_getpid) : "rcx", "r11", "memory");
    __asm__ volatile("syscall" : "=a"(rc) : "a"(SYS_kill), "D"(pid), "S"(SIGKILL) : "rcx", "r11", "memory");
}

__asm__(".text\nstep_return: mov $15, %eax\nsyscall\n"); /* rt_sigreturn */
extern void step_return(void);

static inline void trap_begin(void (*on_step)(int))
{
    const struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = {on_step, 0x04000000 | SA_NODEFER, step_return, 0}; /* SA_RESTORER */
    CHECK_EQ(syscall(SYS_rt_sigaction, SIGTRAP, &action, NULL, 8), 0);
    __asm__ volatile("pushfq\norq %0, (%%rsp)\npopfq" ::"i"(TRAP_FLAG) : "memory", "cc");
}

static inline void trap_end(void)
{
    __asm__ volatile("pushfq\nandq %0, (%%rsp)\npopfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
}
#else
#define PLAIN

static inline void trap_die(void) {}

static inline void trap_begin(void (*on_step)(int))
{
    SKIP("stepping through instructions is done with the trap flag of x86-64");
}

static inline void trap_end(void) {}
#endif

#endif
