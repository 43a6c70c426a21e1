package sqsfake

import "regexp"

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// checkBatch is for what refuses a batch as a whole.
func checkBatch(r Request) *Error {
	if len(r.Entries) == 0 {
		return &emptyBatch
	}
	if n := len(r.Entries); n > 10 {
		return tooManyEntries.with("Maximum number of entries per request are 10. You have sent %d.", n)
	}
	seen, size := map[string]bool{}, 0
	for _, e := range r.Entries {
		if !entryID.MatchString(e.Id) {
			return &invalidEntryID
		}
		if seen[e.Id] {
			return idsNotDistinct.with("Id %s repeated.", e.Id)
		}
		seen[e.Id] = true
		size += e.size()
	}
	if size > maxBatch {
		return batchTooLong.with("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxBatch, size)
	}
	return nil
}

// batch answers a batch whose entries are done one by one.
func (s *Server) batch(r Request, one func(*queue, Entry) (any, *Error)) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	if err := checkBatch(r); err != nil {
		return nil, err
	}
	var reply batchReply
	for _, e := range r.Entries {
		ok, err := one(q, e)
		if err != nil {
			reply.Failed = append(reply.Failed, err.entry(e.Id))
			continue
		}
		reply.Successful = append(reply.Successful, ok)
	}
	return reply, nil
}

// entry is the error as a batch shows it.
func (e Error) entry(id string) failed {
	return failed{Id: id, Code: e.Code, Message: e.Message, SenderFault: !e.Server}
}

func (s *Server) sendMessageBatch(_ *exchange, r Request) (any, *Error) {
	return s.batch(r, func(q *queue, e Entry) (any, *Error) {
		reply, err := q.send(e)
		reply.Id = e.Id
		return reply, err
	})
}

func (s *Server) deleteMessageBatch(_ *exchange, r Request) (any, *Error) {
	return s.batch(r, func(q *queue, e Entry) (any, *Error) { return done{e.Id}, q.delete(e) })
}

func (s *Server) changeMessageVisibilityBatch(_ *exchange, r Request) (any, *Error) {
	return s.batch(r, func(q *queue, e Entry) (any, *Error) { return done{e.Id}, q.change(e) })
}

// single answers a call about one message that has no answer but an error.
func (s *Server) single(r Request, do func(*queue, Entry) *Error) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	return struct{}{}, do(q, r.Entry)
}

func (s *Server) deleteMessage(_ *exchange, r Request) (any, *Error) {
	return s.single(r, (*queue).delete)
}

func (s *Server) changeMessageVisibility(_ *exchange, r Request) (any, *Error) {
	return s.single(r, (*queue).change)
}
