// Package quarantine isolates payloads that may break the device, and finds the payload that does.
//
// A payload that was delivered before and not settled may have ended the process that received it. A Controller pulls a few such
// payloads at a time. It tries the payloads in isolated batches that get smaller with every delivery, until each payload is
// alone. A Bisector halves a batch on which an operator failed. A Judge gives up a payload only with evidence that the device
// works, because probes pass and other payloads succeed (adr/0031).
//
// Shared delivery uses the whole package. Exclusive delivery uses FindFailing and the Judge. Start reading at Controller and
// FindFailing.
package quarantine
