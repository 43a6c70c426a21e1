-- What jobs that were submitted are now. Keys are looked up as in claim_read.sql.
-- $1 tenants, $2 keys
select q.item, j.state, j.action, j.input_hash
from unnest($1::text[], $2::text[]) with ordinality as q(tenant, key, item)
join paidonce.job j on j.key = q.key and j.tenant = q.tenant collate "C"
