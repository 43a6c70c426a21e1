-- Jobs of each action that wait for somebody who can run them, of all tenants.
select action, count(*) as count, max(clock_timestamp() - created_at) as oldest
from paidonce.job where state in ('ready', 'unknown') group by action order by action
