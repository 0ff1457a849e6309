#include "designs/design.h"
#include "designs/all.h"

#include <string.h>

const struct design *const designs[] = {
    &design_word,
    NULL,
};

const struct design *design_find(const char *name)
{
    for (const struct design *const *d = designs; *d; d++)
        if (!strcmp((*d)->name, name))
            return *d;
    return NULL;
}

const char *design_feature_name(unsigned bit)
{
    static const char *const names[DESIGN_FEATURES] = {"exclusive", "shared",  "tokens", "recovery",
                                                       "timeout",   "convert", "ranges", "async"};
    return bit < DESIGN_FEATURES ? names[bit] : NULL;
}

const char *design_substrate_name(unsigned bit)
{
    static const char *const names[DESIGN_SUBSTRATES] = {"shm", "sim"};
    return bit < DESIGN_SUBSTRATES ? names[bit] : NULL;
}
