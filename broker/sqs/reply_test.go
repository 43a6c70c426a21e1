package sqs_test

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/broker"
)

// However a message writes the worker's own queue, no answer goes there.
func TestReplyToOneself(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.ok("publish", b.Publish(s.Context(), broker.Message{Body: []byte("x")}))
		own := s.srv.Calls("SendMessageBatch")[0].Request.QueueUrl
		slash := strings.LastIndexByte(own, '/')
		for _, to := range []string{own, own[:slash] + "/" + own[slash:], own[:slash] + "/." + own[slash:], own[:slash] + "/x/.." + own[slash:],
			own + "?", own + "#", own + "?a=/jobs", own[:slash] + "/%6Aobs", strings.Replace(own, "://", "://u@", 1), own + "?" + strings.Repeat("a", 1000)} {
			s.is("reply to "+to, b.Reply(s.Context(), to, broker.Message{Body: []byte("answer")}), broker.ErrUnroutable)
		}
		s.depth(1, 0)
	})
}
