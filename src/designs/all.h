/* Every design there is. */
#ifndef PAWL_DESIGNS_ALL_H
#define PAWL_DESIGNS_ALL_H

#include "designs/design.h"

extern const struct design design_word;

#endif
