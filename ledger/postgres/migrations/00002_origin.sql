-- +goose Up

set local lock_timeout = '2s';

-- What is known of the message that asked for the job first: evidence, at most some hundred bytes.
alter table paidonce.job add column origin jsonb;
