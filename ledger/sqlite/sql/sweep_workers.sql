-- Closes the epochs of workers whose lease is over: only then are their jobs taken
-- over or lapsed.
-- ?1 now
update paidonce_worker set closed_at = ?1 where closed_at is null and lease_until <= ?1
