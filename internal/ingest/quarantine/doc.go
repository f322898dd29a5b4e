// Package quarantine isolates payloads that may break the device, and finds the one to blame.
//
// A payload that was delivered before and not settled may have ended the process that had it. A Controller pulls such payloads a
// few at a time, and tries them in isolated batches that get smaller with every delivery, until each payload is alone. A Bisector
// halves a batch on which an operator failed. A Judge gives up a payload only with evidence against it: the device computes
// payloads of known content correctly, and other payloads succeed (adr/0031).
//
// Shared delivery uses all of it. Exclusive delivery uses FindFailing and the Judge. Start reading at Controller and FindFailing.
package quarantine
