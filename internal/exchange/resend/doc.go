// Package resend publishes dead letters again as inputs. The command `worker retry` is its only user. Start reading at Resender.Run.
//
// A durable consumer on the stream of dead letters remembers which of them were sent: a dead letter is acknowledged after the input
// stream has stored its input. All others stay unacknowledged, whatever the reason: a run doesn't select them, refuses them, or fails. At its end a run
// gives them back, so the next run, with any selection, gets them at once. Only the consumer changes; the stream keeps every dead letter,
// because `worker audit` needs them (adr/0050).
//
// A message that the consumer delivers to one run is delivered to no other run until AckWait has passed. So runs may overlap, and each
// dead letter is sent by one of them. A run that is killed between the publish and the acknowledgement leaves its dead letters to a later run, which publishes
// them with the same Nats-Msg-Id. Within the input stream's duplicate window the stream drops the second copy. After that it
// stores the input twice.
package resend
