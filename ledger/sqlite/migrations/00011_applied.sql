-- When the user's rows for the attempt's answer were committed, in their own transaction. Null: they were not. It is no state: an
-- attempt that is received never changes that again.
alter table paidonce_attempt add column applied_at integer;
