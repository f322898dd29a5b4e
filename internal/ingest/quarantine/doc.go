// Package quarantine tries payloads apart from others that may break the device, and finds the one to blame.
//
// A payload that was delivered before and not settled may be what ended the process that had it. A Controller takes such payloads from the
// server, few at a time, and tries them in isolated batches that get smaller with every delivery, until each is alone. A Bisector halves a
// batch on which an operator failed. A Judge gives a payload up only with evidence against it: the device computes payloads of known content
// right, and other payloads come right (adr/0018, adr/0031).
//
// Shared delivery uses all of it. Exclusive delivery uses FindFailing and the Judge. Start reading at Controller and FindFailing.
package quarantine
