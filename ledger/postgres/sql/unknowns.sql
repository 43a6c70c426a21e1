-- Unknown jobs of each action, of all tenants.
select action, count(*) as count, max(clock_timestamp() - unknown_at) as oldest
from paidonce.job where state = 'unknown' group by action order by action
