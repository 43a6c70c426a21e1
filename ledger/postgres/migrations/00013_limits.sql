-- +goose Up

set local lock_timeout = '2s';

-- Limits of a job beside its budget. They are null where there is none, so that a job without limits is as large as before.
alter table paidonce.job
  add column max_calls int,        -- most attempts of a generation that were sent or may have been
  add column lifetime  interval,   -- of a generation; calls are sent until it is over
  add column uncounted int,        -- of attempts, those of earlier generations and those that were not sent; null: 0
  add column began_at  timestamptz; -- the present generation; null: with the row
