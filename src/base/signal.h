/* ^C and SIGTERM ask for a clean stop: long loops poll nw_stop_requested and return NW_E_CANCELLED,
 * leaving a state that resumes. A second ^C ends the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_SIGNAL_H
#define NW_BASE_SIGNAL_H

#include <stdbool.h>

void nw_stop_install(void); /* called by main, once */
bool nw_stop_requested(void);
void nw_stop_request(void); /* for tests and servers */

#endif
