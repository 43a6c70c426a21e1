package sqsfake

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// waiter is a long poll that waits for a message.
type waiter struct {
	r     receive
	ends  time.Time // by the server's clock
	reply *receiveReply
}

// receive is a ReceiveMessage that was understood.
type receive struct {
	Request
	at    time.Time // when it came in
	max   int
	wait  time.Duration
	hide  time.Duration
	twice bool // the first message stays visible, as if never handed out
}

// receiveMessage answers ReceiveMessage. It goes on waiting when its client has
// left, as AWS does: what comes then is handed out to nobody.
func (s *Server) receiveMessage(x *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	c, err := q.understand(r)
	if err != nil {
		return nil, err
	}
	c.twice = x != nil && x.fault.Twice
	if reply := q.replay(c); reply != nil {
		return *reply, nil
	}
	if c.wait == 0 && !q.fifo && q.depth(s.now()).InFlight >= s.opt.InFlight {
		return nil, &OverLimit
	}
	reply := q.take(c)
	s.settle() // a message may have gone to a dead-letter queue
	if len(reply.Messages) > 0 || c.wait == 0 {
		return reply, nil
	}
	return s.poll(q, c), nil
}

func (q *queue) understand(r Request) (receive, *Error) {
	c := receive{Request: r, at: q.s.now(), max: 1, wait: q.seconds("ReceiveMessageWaitTimeSeconds"), hide: q.seconds("VisibilityTimeout")}
	if r.MaxNumberOfMessages != nil {
		c.max = *r.MaxNumberOfMessages
		if err := between("MaxNumberOfMessages", c.max, 1, 10); err != nil {
			return c, err
		}
	}
	if r.WaitTimeSeconds != nil {
		c.wait = time.Duration(*r.WaitTimeSeconds) * time.Second
		if err := between("WaitTimeSeconds", *r.WaitTimeSeconds, 0, 20); err != nil {
			return c, err
		}
	}
	if r.VisibilityTimeout != nil {
		c.hide = time.Duration(*r.VisibilityTimeout) * time.Second
		if err := between("VisibilityTimeout", *r.VisibilityTimeout, 0, 43_200); err != nil {
			return c, err
		}
	}
	if r.ReceiveRequestAttemptId != "" && !q.fifo {
		return c, InvalidParameterValue.with("Value %s for parameter ReceiveRequestAttemptId is invalid. Reason: The request include parameter that is not valid for this queue type.", r.ReceiveRequestAttemptId)
	}
	return c, nil
}

// poll waits for a message, until its time is over in either clock. The caller holds
// mu, which is free while it waits.
func (s *Server) poll(q *queue, c receive) receiveReply {
	w := &waiter{r: c, ends: s.now().Add(c.wait)}
	q.waiters = append(q.waiters, w)
	s.settle()
	over := time.NewTimer(c.wait)
	defer over.Stop()
	for waiting := true; waiting && w.reply == nil && s.now().Before(w.ends); {
		changed := s.changed
		next := time.NewTimer(q.next(c.wait))
		s.mu.Unlock()
		select {
		case <-changed:
		case <-next.C:
		case <-over.C:
			waiting = false
		case <-s.done:
			waiting = false
		}
		next.Stop()
		s.mu.Lock()
		if s.opt.Running && w.reply == nil && q.serve() {
			s.settle()
		}
	}
	q.waiters = slices.DeleteFunc(q.waiters, func(x *waiter) bool { return x == w })
	s.settle()
	if w.reply == nil {
		return receiveReply{}
	}
	return *w.reply
}

// next is when time alone makes a message visible, at most d.
func (q *queue) next(d time.Duration) time.Duration {
	now := q.s.now()
	for _, m := range q.messages {
		if left := m.visibleAt().Sub(now); q.s.opt.Running && left > 0 {
			d = min(d, left)
		}
	}
	return d
}

// serve answers the open polls, oldest first, and reports whether a message went to
// a dead-letter queue.
func (q *queue) serve() (moved bool) {
	for _, w := range q.waiters {
		if w.reply != nil || !q.s.now().Before(w.ends) {
			continue
		}
		before := len(q.messages)
		if reply := q.take(w.r); len(reply.Messages) > 0 {
			w.reply = &reply
		}
		moved = moved || len(q.messages) < before
	}
	return moved
}

// take hands out what can be received now.
func (q *queue) take(c receive) receiveReply {
	now := q.s.now()
	room := min(c.max, q.s.opt.InFlight-q.depth(now).InFlight)
	dead, most := q.dead()
	blocked := map[string]bool{}
	var taken []*holding
	for _, m := range q.inOrder() {
		switch {
		case len(taken) >= room || blocked[m.group]:
		case m.visibleAt().After(now):
			blocked[m.group] = q.fifo
		case dead != nil && m.receives >= most:
			q.toDead(m, dead)
		default:
			taken = append(taken, q.hand(m, c.at, now, c.hide))
		}
	}
	if len(taken) > 0 && c.twice {
		taken[0].m.hidden = now
	}
	if q.fifo && c.ReceiveRequestAttemptId != "" && len(taken) > 0 {
		q.attempts[c.ReceiveRequestAttemptId] = attempt{taken, now}
	}
	return q.answer(c, taken)
}

// inOrder lists the messages as they are handed out: a FIFO queue keeps the groups
// together, in the order of their first messages.
func (q *queue) inOrder() []*message {
	if !q.fifo {
		return slices.Clone(q.messages)
	}
	byGroup, groups := map[string][]*message{}, []string{}
	for _, m := range q.messages {
		if byGroup[m.group] == nil {
			groups = append(groups, m.group)
		}
		byGroup[m.group] = append(byGroup[m.group], m)
	}
	var all []*message
	for _, g := range groups {
		all = append(all, byGroup[g]...)
	}
	return all
}

// replay answers a receive attempt a second time, with the same messages and
// handles, unless one of them has changed. nil: it is a new attempt.
func (q *queue) replay(c receive) *receiveReply {
	now := q.s.now()
	a, known := q.attempts[c.ReceiveRequestAttemptId]
	if !known || now.Sub(a.at) >= window {
		return nil
	}
	for _, h := range a.holdings {
		if h.m.gone || h.changed || h.m.current != h {
			return nil
		}
	}
	for _, h := range a.holdings {
		h.m.hidden = now.Add(c.hide)
	}
	reply := q.answer(c, a.holdings)
	return &reply
}

func (q *queue) answer(c receive, taken []*holding) (reply receiveReply) {
	for _, h := range taken {
		m := h.m
		attributes := chosen(m.attributes, c.MessageAttributeNames)
		reply.Messages = append(reply.Messages, received{
			MessageId: m.id, ReceiptHandle: h.handle, Body: m.body, MD5OfBody: md5Hex(m.body),
			Attributes:        q.system(m, slices.Concat(c.AttributeNames, c.MessageSystemAttributeNames)),
			MessageAttributes: attributes, MD5OfMessageAttributes: attributesMD5(attributes),
		})
	}
	return reply
}

// system are the attributes that SQS keeps of a message, as far as they were asked for.
func (q *queue) system(m *message, names []string) map[string]string {
	all := map[string]string{
		"SenderId":                         "AIDAFAKESENDER0000000",
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
		"MessageGroupId":                   m.group,
		"MessageDeduplicationId":           m.dedup,
		"SequenceNumber":                   m.sequence,
		"AWSTraceHeader":                   m.trace,
		"DeadLetterQueueSourceArn":         m.source,
	}
	for name, v := range all {
		if v == "" || !slices.Contains(names, "All") && !slices.Contains(names, name) {
			delete(all, name)
		}
	}
	return all
}

// chosen are the attributes that a receiver asked for: by name, by "All" or ".*",
// or by a prefix before ".*".
func chosen(attributes map[string]Attribute, names []string) map[string]Attribute {
	some := map[string]Attribute{}
	for name, a := range attributes {
		for _, want := range names {
			prefix, wild := strings.CutSuffix(want, ".*")
			if want == "All" || want == name || wild && strings.HasPrefix(name, prefix) {
				some[name] = a
			}
		}
	}
	return some
}
