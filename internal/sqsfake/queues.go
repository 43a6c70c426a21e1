package sqsfake

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// ranges are the attributes that are numbers, with what they may be.
var ranges = map[string][2]int{
	"VisibilityTimeout":             {0, 43_200},
	"MessageRetentionPeriod":        {60, 1_209_600},
	"DelaySeconds":                  {0, 900},
	"ReceiveMessageWaitTimeSeconds": {0, 20},
	"MaximumMessageSize":            {1_024, maxBatch},
	"KmsDataKeyReusePeriodSeconds":  {60, 86_400},
}

// settable are the other attributes that may be set.
var settable = []string{
	"RedrivePolicy", "RedriveAllowPolicy", "Policy", "FifoQueue", "ContentBasedDeduplication",
	"DeduplicationScope", "FifoThroughputLimit", "KmsMasterKeyId", "SqsManagedSseEnabled",
}

type queueURL struct{ QueueUrl string }

func (s *Server) createQueue(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	base, fifo := strings.CutSuffix(r.QueueName, ".fifo")
	if !queueName.MatchString(base) || len(r.QueueName) > 80 || fifo != (r.Attributes["FifoQueue"] == "true") {
		return nil, InvalidParameterValue.with("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length. The name of a FIFO queue can only include these and must end with .fifo suffix.")
	}
	if q := s.queues[r.QueueName]; q != nil {
		for k, v := range r.Attributes {
			if q.attributes[k] != v {
				return nil, queueNameExists.with("A queue already exists with the same name and a different value for attribute %s", k)
			}
		}
		return queueURL{s.queueURL(q.name)}, nil
	}
	now := s.now()
	q := &queue{
		s: s, name: r.QueueName, fifo: fifo, created: now,
		attributes: map[string]string{
			"VisibilityTimeout": "30", "MessageRetentionPeriod": "345600", "DelaySeconds": "0",
			"ReceiveMessageWaitTimeSeconds": "0", "MaximumMessageSize": strconv.Itoa(maxBatch), "SqsManagedSseEnabled": "true",
		},
		handles: map[string]*holding{}, dedup: map[string]accepted{}, attempts: map[string]attempt{},
	}
	if fifo {
		maps.Copy(q.attributes, map[string]string{"ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"})
	}
	if err := q.set(r.Attributes); err != nil {
		return nil, err
	}
	s.queues[q.name] = q
	return queueURL{s.queueURL(q.name)}, nil
}

// set checks attributes and takes them over, all or none.
func (q *queue) set(attributes map[string]string) *Error {
	for name, v := range attributes {
		if r, ok := ranges[name]; ok {
			if n, err := strconv.Atoi(v); err != nil || n < r[0] || n > r[1] {
				return invalidAttributeValue.with("Invalid value for the parameter %s.", name)
			}
		} else if !slices.Contains(settable, name) {
			return invalidAttributeName.with("Unknown Attribute %s.", name)
		}
	}
	if policy := attributes["RedrivePolicy"]; policy != "" {
		if err := q.checkRedrive(policy); err != nil {
			return err
		}
	}
	for name, v := range attributes {
		if v == "" {
			delete(q.attributes, name) // how a RedrivePolicy is taken away
		} else {
			q.attributes[name] = v
		}
	}
	q.modified = q.s.now()
	return nil
}

func (q *queue) checkRedrive(policy string) *Error {
	bad := func(reason string) *Error {
		return InvalidParameterValue.with("Value %s for parameter RedrivePolicy is invalid. Reason: %s", policy, reason)
	}
	r, err := parseRedrive(policy)
	if err != nil {
		return bad("Redrive policy is not a valid JSON map.")
	}
	if r.Max < 1 || r.Max > 1000 {
		return bad("Invalid value for maxReceiveCount: it must be between 1 and 1000.")
	}
	switch target := q.s.byARN(r.Target); {
	case target == nil:
		return bad("Dead letter target does not exist.")
	case target.fifo != q.fifo:
		return bad("Dead-letter queue must be same type of queue as the source.")
	}
	return nil
}

func (s *Server) setQueueAttributes(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	return struct{}{}, q.set(r.Attributes)
}

func (s *Server) getQueueAttributes(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	d := q.depth(s.now())
	all := maps.Clone(q.attributes)
	maps.Copy(all, map[string]string{
		"QueueArn":                              ARN(q.name),
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"ApproximateNumberOfMessages":           strconv.Itoa(d.Visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(d.InFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(d.Delayed),
	})
	for _, name := range r.AttributeNames {
		if _, ok := all[name]; !ok && name != "All" && ranges[name] == [2]int{} && !slices.Contains(settable, name) {
			return nil, invalidAttributeName.with("Unknown Attribute %s.", name)
		}
	}
	maps.DeleteFunc(all, func(name, _ string) bool {
		return !slices.Contains(r.AttributeNames, "All") && !slices.Contains(r.AttributeNames, name)
	})
	return struct {
		Attributes map[string]string `json:",omitempty"`
	}{all}, nil
}

func (s *Server) getQueueURL(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[r.QueueName] == nil {
		return nil, &QueueDoesNotExist
	}
	return queueURL{s.queueURL(r.QueueName)}, nil
}

func (s *Server) listQueues(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var reply struct {
		QueueUrls []string `json:",omitempty"`
	}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(name, r.QueueNamePrefix) {
			reply.QueueUrls = append(reply.QueueUrls, s.queueURL(name))
		}
	}
	return reply, nil
}

func (s *Server) listSources(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	urls := []string{}
	for _, source := range q.sources() {
		urls = append(urls, s.queueURL(source.name))
	}
	slices.Sort(urls)
	return map[string][]string{"queueUrls": urls}, nil
}

// sources are the queues whose dead-letter queue this is.
func (q *queue) sources() (all []*queue) {
	for _, s := range q.s.queues {
		if dead, _ := s.dead(); dead == q {
			all = append(all, s)
		}
	}
	return all
}

func (s *Server) deleteQueue(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	delete(s.queues, q.name)
	return struct{}{}, nil
}

func (s *Server) purgeQueue(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	now := s.now()
	if !q.purged.IsZero() && now.Sub(q.purged) < time.Minute {
		return nil, purgeInProgress.with("Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = now
	for _, m := range slices.Clone(q.messages) {
		q.remove(m)
	}
	return struct{}{}, nil
}

// startMessageMoveTask moves everything at once: to the destination, else where each
// message came from. A message that was moved is a new one, with another id.
func (s *Server) startMessageMoveTask(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, to := s.byARN(r.SourceArn), s.byARN(r.DestinationArn)
	if q == nil || r.DestinationArn != "" && to == nil {
		return nil, &resourceNotFound
	}
	if len(q.sources()) == 0 {
		return nil, InvalidParameterValue.with("Source queue must be configured as a Dead Letter Queue.")
	}
	now := s.now()
	for _, m := range slices.Clone(q.messages) {
		target := to
		if target == nil {
			target = s.byARN(m.source)
		}
		if target == nil || m.visibleAt().After(now) {
			continue
		}
		q.remove(m)
		fresh := message{body: m.body, attributes: m.attributes, group: m.group, dedup: m.dedup, trace: m.trace, sequence: m.sequence, id: messageID(), sent: now}
		target.messages = append(target.messages, &fresh)
	}
	return map[string]string{"TaskHandle": messageID()}, nil
}
