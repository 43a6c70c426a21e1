-- Locks a job row, in the same pipeline and so in the same transaction as the statement
-- that follows. That one then has a snapshot from after the wait, and sees what
-- the lock's last holder wrote to other tables.
-- $1 tenant, $2 job
select 1 from paidonce.job where tenant = $1 and id = $2 for update
