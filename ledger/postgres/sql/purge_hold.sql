-- Holds the purge off until the transaction ends; it takes this lock before any row, too.
select pg_advisory_xact_lock(hashtext('paidonce.purge'))
