/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of kv-client and kv-server, inside of pawl's packets: one byte for the operation, one for the length of the key, the
 * key, and then the value. The answer is one byte for the status, and a value. */
#ifndef EXAMPLES_KV_H
#define EXAMPLES_KV_H

#include <pawl.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum kv_op {
    KV_GET = 'g',
    KV_SET = 's',
    KV_ADD = 'a', /* the value is a number in decimal digits, added to what is there */
};

enum kv_status {
    KV_OK = '+',
    KV_NONE = '-', /* nothing is there */
    KV_BAD = '!',  /* not understood, or not a number */
    KV_FULL = '#',
};

#define KV_KEY_MAX 100
#define KV_VALUE_MAX 300 /* with the key and two bytes less than PAWL_CALL_MAX */

#endif
