// What the program does over a connection: the exchange of krping, and its measurements.
//
// ping, each round:   client                          server
//                     SEND where the data is    ->
//                                               <-    READ it, SEND go-ahead
//                     SEND where it goes        ->
//                                               <-    WRITE it, SEND go-ahead
//                     compare
// rlat, wlat, bw: both SEND where their memory is, then the client READs; both WRITE in turns; the client (with
// duplex both) WRITEs as fast as it goes.
#pragma once

#include "buffers.h"
#include "connection.h"
#include "options.h"
#include "report.h"

namespace uroce::ping {

/// Runs the test until its rounds are done, the peer disconnects or the user interrupts it.
Result run(Connection& connection, Buffers& buffers, const Options& options);

}  // namespace uroce::ping
