/* SPDX-License-Identifier: Apache-2.0 */
/* The public header needs nothing before it, and may be included twice. */
#include "pawl.h"
#include "pawl.h" /* NOLINT(readability-duplicate-include) */

int main(void)
{
    return 0;
}
