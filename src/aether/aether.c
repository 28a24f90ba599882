#include "aether/aether.h"
