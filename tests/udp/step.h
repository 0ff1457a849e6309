/* A process that dies after exactly so many instructions: the processor's trap flag sends a signal after every one. */
#ifndef PAWL_TESTS_UDP_STEP_H
#define PAWL_TESTS_UDP_STEP_H

#include "tests/shm/space.h"

#include <sys/syscall.h>

#define STEPS_MAX 20000

static struct steps {
    uint64_t death, made;
    uint32_t survived;
} * steps; /* shared_memory() */

#if defined __x86_64__
#define TRAP_FLAG 0x100
#define PLAIN __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

PLAIN static void on_step(int signal)
{
    if (steps->made++ == steps->death) {
        long pid, rc;
        __asm__ volatile("syscall" : "=a"(pid) : "a"(SYS_getpid) : "rcx", "r11", "memory");
        __asm__ volatile("syscall" : "=a"(rc) : "a"(SYS_kill), "D"(pid), "S"(SIGKILL) : "rcx", "r11", "memory");
    }
}

__asm__(".text\nstep_return: mov $15, %eax\nsyscall\n"); /* rt_sigreturn */
extern void step_return(void);

static void begin(void)
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

static void end(void)
{
    __asm__ volatile("pushfq\nandq %0, (%%rsp)\npopfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
    steps->survived = 1;
}
#else
static void begin(void)
{
    SKIP("stepping through instructions is done with the trap flag of x86-64");
}

static void end(void) {}
#endif

#endif
