package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/planted"
)

// The plain recipe, as articles on idempotent consumers give it: a row for each key, inserted if it is absent; a lock with
// an expiry on it; whoever finds the lock expired takes over; the result is saved, then the message is
// acknowledged. The model is called through its vendor's SDK, with its defaults.
const plainTable = `create table plain (key text primary key, locked_until timestamptz not null, tries int not null default 1, result text)`

// plainLock outlasts a call, so that nobody takes over from somebody who lives.
const plainLock = 2 * proofTimeout

// plainTries is how often a message is tried before it is set aside.
const plainTries = 10

// plainVariable makes this program the plain worker.
const plainVariable = "PAIDONCE_E2E_PLAIN"

type plain struct {
	db  *pgxpool.Pool
	src broker.Source
}

// runPlain is the process of a plain worker. It runs until it is killed.
func runPlain() error {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("PAIDONCE_LEDGER_URL"))
	if err != nil {
		return err
	}
	b, err := rabbitmq.Open(ctx, rabbitmq.Config{URL: os.Getenv("PAIDONCE_BROKER_URL"), Queue: os.Getenv("PAIDONCE_BROKER_QUEUE")})
	if err != nil {
		return err
	}
	slots, err := strconv.Atoi(os.Getenv("PAIDONCE_CONSUMER_WORKERS"))
	if err != nil {
		return err
	}
	p := &plain{db, b}
	var workers sync.WaitGroup
	for range slots {
		workers.Go(func() {
			for {
				ds, err := p.src.Receive(ctx, 1)
				if err != nil {
					fmt.Fprintln(os.Stderr, "receive:", err)
					time.Sleep(100 * time.Millisecond)
				}
				for _, d := range ds {
					if err := p.handle(ctx, d); err != nil {
						fmt.Fprintln(os.Stderr, "handle:", err)
					}
				}
			}
		})
	}
	workers.Wait()
	return nil
}

// handle deals with one delivery.
func (p *plain) handle(ctx context.Context, d broker.Delivery) error {
	var t summarize.Ticket
	if err := json.Unmarshal(d.Body, &t); err != nil || d.Attributes[consumer.Attribute] != summarize.Name {
		return errors.Join(fmt.Errorf("message %s is no ticket", d.ID), err, p.src.DeadLetter(ctx, d, "no ticket"))
	}
	key := t.JobKey().String()
	switch mine, busy, err := p.lock(ctx, key); {
	case err != nil:
		return errors.Join(err, p.src.Nack(ctx, d, time.Second))
	case busy:
		return p.src.Nack(ctx, d, time.Second)
	case !mine: // it is done
		return p.src.Ack(ctx, d)
	}
	summary, err := p.ask(ctx, t)
	if err != nil {
		_, uerr := p.db.Exec(ctx, "update plain set locked_until = clock_timestamp() where key = $1", key)
		return errors.Join(err, uerr, p.src.Nack(ctx, d, time.Second))
	}
	if _, err := p.db.Exec(ctx, "update plain set result = $2 where key = $1", key, summary); err != nil {
		return errors.Join(err, p.src.Nack(ctx, d, time.Second))
	}
	return p.src.Ack(ctx, d)
}

// lock reports whether the caller may do the work of the key, or else whether somebody is at it. Neither: it is done, or
// was given up.
func (p *plain) lock(ctx context.Context, key string) (mine, busy bool, err error) {
	tag, err := p.db.Exec(ctx, "insert into plain (key, locked_until) values ($1, clock_timestamp() + $2::interval) on conflict do nothing", key, plainLock)
	if err != nil || tag.RowsAffected() == 1 {
		return err == nil, false, err
	}
	tag, err = p.db.Exec(ctx, `update plain set locked_until = clock_timestamp() + $2::interval, tries = tries + 1
		where key = $1 and result is null and locked_until <= clock_timestamp() and tries < $3`, key, plainLock, plainTries)
	if err != nil || tag.RowsAffected() == 1 {
		return err == nil, false, err
	}
	err = p.db.QueryRow(ctx, "select result is null and tries < $2 from plain where key = $1", key, plainTries).Scan(&busy)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return false, busy, err
}

func (p *plain) ask(ctx context.Context, t summarize.Ticket) (string, error) {
	c := anthropic.NewClient(option.WithBaseURL(os.Getenv("PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL")), option.WithAPIKey(planted.Secret("sk-ant")),
		option.WithRequestTimeout(proofTimeout))
	m, err := c.Messages.New(ctx, anthropic.MessageNewParams{Model: "claude-haiku-4-5", MaxTokens: 500,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(t.Thread))}})
	switch {
	case err != nil:
		return "", err
	case len(m.Content) == 0 || m.Content[0].Text == "":
		return "", errors.New("the answer is empty")
	}
	return m.Content[0].Text, nil
}
