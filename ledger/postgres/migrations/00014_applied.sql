-- +goose Up

set local lock_timeout = '2s';

-- When the user's rows for the attempt's answer were committed, in their own transaction. Null: they were not. It is no state: an
-- attempt that is received never changes that again. It goes where its attempt goes: to another partition, and out with it.
alter table paidonce.attempt add column applied_at timestamptz;
