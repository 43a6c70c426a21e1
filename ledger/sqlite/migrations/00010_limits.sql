-- Limits of a job beside its budget; null: none.
alter table paidonce_job add column max_calls integer; -- most attempts of a generation that were sent or may have been
alter table paidonce_job add column lifetime integer;  -- microseconds, of a generation; calls are sent until it is over
alter table paidonce_job add column uncounted integer; -- of attempts, those of earlier generations and those that were not sent; null: 0
alter table paidonce_job add column began_at integer;  -- the present generation; null: with the row
