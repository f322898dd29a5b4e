// Package shared implements shared delivery: any number of workers pull from one consumer, and each input is acknowledged
// individually.
//
// A source pulls deliveries. The admission drops deliveries that are already settled and puts suspicious ones into quarantine. A
// submitter packs the others into batches for a pipeline. A settler publishes the results of each completed batch, and the
// acknowledger then acknowledges the inputs. The ledger records which inputs are in flight or were recently settled.
//
// The worker (package ingest) runs a Mode unless it uses exclusive delivery. Start reading at Mode.Run.
package shared
