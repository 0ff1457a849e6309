/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people write them on a command line. Everything that is not understood to its last character is refused. */
#include "lib/args.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define DECIMALS_MAX 9 /* nanoseconds of a second */

struct number {
    uint64_t whole;
    uint64_t billionths;
    unsigned decimals; /* how many digits followed the point */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int parse_whole(const char **text, uint64_t *value)
{
    const char *p = *text;
    uint64_t n = 0;
    if (!is_digit(*p))
        return -EINVAL; /* no sign, no space: strtoull would take both, and turn -1 into 2^64-1 */
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(n, UINT64_C(10), &n) || __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return -ERANGE;
    *text = p;
    *value = n;
    return 0;
}

/* Digits, or digits with a point. `.5` is taken for 0.5. */
static int parse_decimal(const char **text, struct number *out)
{
    struct number n = {0};
    const char *p = *text;
    if (*p != '.') {
        int err = parse_whole(&p, &n.whole);
        if (err)
            return err;
    }
    if (*p == '.') {
        uint64_t unit = 1000000000;
        for (p++; is_digit(*p); p++) {
            if (++n.decimals > DECIMALS_MAX)
                return -EINVAL;
            unit /= 10;
            n.billionths += unit * (uint64_t)(*p - '0');
        }
        if (!n.decimals)
            return -EINVAL;
    }
    *text = p;
    *out = n;
    return 0;
}

int args_u64(const char *text, uint64_t *value)
{
    static const char units[] = "KMGT";
    uint64_t n = 0;
    int err = parse_whole(&text, &n);
    if (err)
        return err;
    const char *unit = *text ? strchr(units, toupper((unsigned char)*text)) : NULL;
    const uint64_t base = unit && text[1] == 'i' ? 1024 : 1000;
    text += unit ? 1 + (base == 1024) : 0;
    if (*text)
        return -EINVAL;
    for (const char *u = units; unit && u <= unit; u++)
        if (__builtin_mul_overflow(n, base, &n))
            return -ERANGE;
    *value = n;
    return 0;
}

int args_duration(const char *text, uint64_t *ns)
{
    static const struct {
        const char *suffix;
        uint64_t ns;
    } units[] = {{"", NS_PER_S},      {"s", NS_PER_S},        {"ms", NS_PER_MS},     {"us", NS_PER_US},
                 {"ns", UINT64_C(1)}, {"min", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}};
    struct number n = {0};
    int err = parse_decimal(&text, &n);
    if (err)
        return err;
    for (size_t i = 0; i < countof(units); i++)
        if (!strcmp(text, units[i].suffix)) {
            u128 total = (u128)n.whole * units[i].ns + (u128)n.billionths * units[i].ns / 1000000000;
            if (total > UINT64_MAX)
                return -ERANGE;
            *ns = (uint64_t)total;
            return 0;
        }
    return -EINVAL;
}

/* In thousandths, what follows left in *text. More decimals would be dropped silently, so they are refused. */
static int parse_thousandths(const char **text, uint64_t *thousandths)
{
    struct number n = {0};
    int err = parse_decimal(text, &n);
    if (err)
        return err;
    if (n.decimals > 3)
        return -EINVAL;
    if (__builtin_mul_overflow(n.whole, UINT64_C(1000), thousandths) ||
        __builtin_add_overflow(*thousandths, n.billionths / 1000000, thousandths))
        return -ERANGE;
    return 0;
}

int args_thousandths(const char *text, uint64_t *thousandths)
{
    uint64_t n = 0;
    int err = parse_thousandths(&text, &n);
    if (err || *text)
        return err ? err : -EINVAL;
    *thousandths = n;
    return 0;
}

int args_fraction(const char *text, uint64_t *thousandths)
{
    uint64_t n = 0;
    int err = parse_thousandths(&text, &n);
    if (err)
        return err;
    if (!strcmp(text, "%")) {
        if (n % 100) /* 12.34 % is beyond a thousandth */
            return -EINVAL;
        n /= 100;
    } else if (*text) {
        return -EINVAL;
    }
    if (n > 1000)
        return -ERANGE;
    *thousandths = n;
    return 0;
}

int args_range(const char *text, struct arg_range *range)
{
    struct arg_range r = {0};
    int err = parse_whole(&text, &r.from);
    if (err)
        return err;
    if (*text++ != ':')
        return -EINVAL;
    err = parse_whole(&text, &r.to);
    if (err || *text)
        return err ? err : -EINVAL;
    if (r.from >= r.to)
        return -ERANGE;
    *range = r;
    return 0;
}
