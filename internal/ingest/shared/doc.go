// Package shared implements shared delivery. Any number of workers pull from one consumer, and each input is
// acknowledged individually.
//
// The source pulls deliveries. The admission drops deliveries that are already settled, and sets the quarantine level of
// the others. Submitters pack deliveries of level 0 into batches for a pipeline. Settlers publish the results of
// completed batches, and the acknowledger then acknowledges the inputs. The ledger records the inputs that are in
// flight or were recently settled.
//
// The worker (package ingest) runs a Mode unless it uses exclusive delivery. Start reading at Mode.Run.
package shared
