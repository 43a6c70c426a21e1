-- The tenant is compared as in claim_read.sql.
-- $1 tenant, $2 key
select id from paidonce.job where key = $2 and tenant = $1 collate "C"
